#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/compiler/compile.h"
#include "tessera/onnx/device_annotations.h"

namespace tessera::compiler {

/// A layout as ONNX's annotations say it; `devices` by rank.
ShardingSpec spec_of(const std::string& tensor, const Sharding& sharding, const Mesh& mesh,
                     const std::vector<int64_t>& devices);

/// Says for a configuration, on each node of `model`, how the compiled model takes its operands and gives its results,
/// as far as these are tensors of the compiled model. What a node says already stays. Tensors that stay partial get no
/// annotation; a partial result has the layout that the first of its readers needs. `copies`: results of the compiled
/// model that stand for a tensor of `model`. Nodes in bodies and functions say something if their tensors were labelled
/// before the model was compiled (inner_tensors.h), and if all iterations and calls that are written out agree.
void write_devices(OnnxModel& model, const Compiled& compiled, const std::vector<int64_t>& devices,
                   const std::string& configuration, const std::map<std::string, std::string>& copies = {});

/// Says it for a configuration of its own, which replaces one of that name. Device i is rank i; the model's metadata
/// name the mesh.
void write_configuration(OnnxModel& model, const Compiled& compiled, const std::string& configuration);

}  // namespace tessera::compiler
