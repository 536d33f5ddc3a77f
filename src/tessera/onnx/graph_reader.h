#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/kept.pb.h"
#include "tessera/onnx.pb.h"
#include "tessera/onnx/external_files.h"

namespace tessera::codec {

/// The raw_data of the initializer of that index, if it was left in the file.
using CutRaw = std::function<std::optional<MappedRange>(int initializer)>;

/// Builds one Graph from a GraphProto or the nodes of a FunctionProto; nested graphs get readers of their own.
/// The reader consumes messages: it clears fields whose content the graph now holds.
class GraphReader {
 public:
  GraphReader(ExternalFiles& files, std::string where, GraphReader* outer = nullptr)
      : files_(files), where_(std::move(where)), outer_(outer) {}

  std::unique_ptr<Graph> read(onnx::GraphProto& proto, const CutRaw& cut_raw = {});
  std::unique_ptr<Graph> read_body(onnx::FunctionProto& proto);

 private:
  void read_inputs(onnx::GraphProto& proto);
  void read_initializers(onnx::GraphProto& proto, const CutRaw& cut_raw);
  void add_initializer(const std::string& name, Tensor data, const kept::Initializer& rest);
  void read_outputs(onnx::GraphProto& proto);
  void read_infos(const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& infos);
  void add_results(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes);
  void read_nodes(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes);
  void read_node(onnx::NodeProto& proto);
  void finish();

  /// A new value; a user error if the name is taken.
  Value* define(const std::string& name, ValueKind kind, std::string_view what);
  /// The value of that name: this graph's own, else captured from an outer graph; null if there is none.
  Value* resolve(const std::string& name);
  /// Gives `info` to the value if it is the first that describes it; else the slot keeps it.
  void describe(Value& value, const onnx::ValueInfoProto& info, kept::InfoSlot& slot);

  ExternalFiles& files_;
  std::string where_;  ///< "graph 'main'", for messages
  GraphReader* outer_;
  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  kept::Graph kept_;
  std::map<std::string, onnx::ValueInfoProto> listed_initializers_;  ///< inputs that have an initializer
  std::vector<std::string> captured_;                                ///< in order of first use
};

}  // namespace tessera::codec
