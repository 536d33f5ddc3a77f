#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tessera/ir/graph.h"
#include "tessera/onnx.pb.h"
#include "tessera/onnx/external_files.h"

namespace tessera::codec {

class ExternalWriter;

using ReadGraph = std::function<std::unique_ptr<Graph>(onnx::GraphProto&)>;
using WriteGraph = std::function<void(const Graph&, onnx::GraphProto&)>;

/// Takes an attribute's name and value out of `proto`; the rest becomes its `extra`. A value that was not written in
/// the regular way (its type, or a zero, is missing) stays in `extra`, so that it can be written as it was. `owner` is
/// the node's label, for messages.
Attribute take_attribute(onnx::AttributeProto& proto, ExternalFiles& files, const std::string& owner,
                         const ReadGraph& read_graph);

/// The inverse; `proto` must be empty.
void put_attribute(const Attribute& attribute, onnx::AttributeProto& proto, ExternalWriter* external,
                   const WriteGraph& write_graph);

}  // namespace tessera::codec
