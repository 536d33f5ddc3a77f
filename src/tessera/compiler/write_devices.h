#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/compiler/compile.h"
#include "tessera/onnx/device_annotations.h"

namespace tessera::compiler {

/// A layout as an ONNX annotation; `devices` has the device of each rank.
ShardingSpec spec_of(const std::string& tensor, const Sharding& sharding, const Mesh& mesh,
                     const std::vector<int64_t>& devices);

/// Annotates each node of `model`, for a configuration, with the layouts of its operands and results in the compiled
/// model, where the compiled model has these tensors. Existing annotations stay. Tensors that stay partial get none; a
/// partial result that is reduced has the layout that the first of its readers needs. `copies`: results of the compiled
/// model that stand for a tensor of `model`. Nodes in bodies and functions are annotated if their tensors were labelled
/// before the model was compiled (inner_tensors.h), and if all unrolled iterations and inlined calls agree.
void write_devices(OnnxModel& model, const Compiled& compiled, const std::vector<int64_t>& devices,
                   const std::string& configuration, const std::map<std::string, std::string>& copies = {});

/// Says it for a configuration of its own, which replaces one of that name. Device i is rank i; the model's metadata
/// name the mesh.
void write_configuration(OnnxModel& model, const Compiled& compiled, const std::string& configuration);

}  // namespace tessera::compiler
