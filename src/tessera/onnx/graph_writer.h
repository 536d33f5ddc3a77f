#pragma once

#include <map>
#include <string>
#include <unordered_map>

#include "tessera/ir/graph.h"
#include "tessera/kept.pb.h"
#include "tessera/onnx.pb.h"

namespace tessera::codec {

class ExternalWriter;

/// Outer names of the values that a nested graph captures, by their names in the nested graph.
using CaptureNames = std::map<std::string, std::string>;

/// Writes one Graph as a GraphProto or as the nodes of a FunctionProto: first the fields kept in `extra`, then the
/// contents of the IR. Lists keep their order; new entries come at the end.
class GraphWriter {
 public:
  /// `external` may be null; then everything is inline. `all_infos`: see ExportOptions::value_info.
  GraphWriter(const Graph& graph, ExternalWriter* external, bool all_infos, const CaptureNames& captures = {});

  void write(onnx::GraphProto& proto);
  void write_body(onnx::FunctionProto& proto);

 private:
  using Infos = google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>;

  void rename_captures(const CaptureNames& captures);
  const std::string& name_of(const Value& value) const;
  bool is_initializer(const Value& value) const;
  void write_inputs(onnx::GraphProto& proto);
  void write_outputs(onnx::GraphProto& proto);
  void write_initializers(onnx::GraphProto& proto);
  void write_initializer(const Value& value, onnx::GraphProto& proto);
  void write_infos(Infos& infos, const Infos& listed);
  void write_info(const Value& value, const kept::InfoSlot* slot, onnx::ValueInfoProto& info);
  void write_nodes(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes);
  void write_node(const Node& node, onnx::NodeProto& proto);

  const Graph& graph_;
  ExternalWriter* external_;
  bool all_infos_;
  kept::Graph kept_;
  std::unordered_map<const Value*, std::string> renamed_;
};

/// The tensor of a value that is written as an initializer; an internal error for a symbolic expression.
Tensor initial_data(const Value& value);

}  // namespace tessera::codec
