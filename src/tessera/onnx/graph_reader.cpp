#include "tessera/onnx/graph_reader.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/aligned.h"
#include "tessera/onnx/attribute_codec.h"
#include "tessera/onnx/tensor_codec.h"
#include "tessera/onnx/type_codec.h"

namespace tessera::codec {
namespace {

ValueKind kind_of(const Tensor& data) {
  const bool parameter = is_float(data.dtype) && !data.dims.empty() && data.count() > 1;
  return parameter || is_quantized_weight(data) ? ValueKind::state : ValueKind::constant;
}

std::string label_of(const onnx::NodeProto& proto) {
  if (!proto.name().empty()) return fmt::format("{} '{}'", proto.op_type(), proto.name());
  for (const std::string& output : proto.output())
    if (!output.empty()) return fmt::format("{} producing '{}'", proto.op_type(), output);
  return proto.op_type();
}

}  // namespace

Value* GraphReader::define(const std::string& name, ValueKind kind, std::string_view what) {
  if (name.empty()) fail("import", "{}: {} has no name; the file is damaged", where_, what);
  if (graph_->find(name))
    fail("import", "{}: the name '{}' is given twice ({}); names of inputs, initializers and results must differ",
         where_, name, what);
  return graph_->add_value(name, kind);
}

Value* GraphReader::resolve(const std::string& name) {
  if (Value* own = graph_->find(name)) return own;
  const Value* outside = outer_ ? outer_->resolve(name) : nullptr;
  if (!outside) return nullptr;
  captured_.push_back(name);
  return graph_->add_value(name, ValueKind::input, outside->type);
}

void GraphReader::describe(Value& value, const onnx::ValueInfoProto& info, kept::InfoSlot& slot) {
  TensorType said = type_of(info);
  if (value.has_data() && !admits(said, value.type))
    fail("import", "{}: '{}' is declared {}{} but its initializer is {}{}; the file is damaged", where_, value.name,
         name_of(said.dtype), said.shape ? to_string(*said.shape) : "", name_of(value.dtype()),
         to_string(value.shape()));
  if (value.extra.empty()) {
    value.extra = info.SerializeAsString();
    if (!value.has_data() && said.dtype != DType::undefined) value.type = std::move(said);
    return;
  }
  *slot.mutable_own() = info;
  if (value.type.dtype == DType::undefined || (!value.type.shape && said.dtype == value.type.dtype))
    value.type = std::move(said);
}

void GraphReader::read_inputs(onnx::GraphProto& proto) {
  std::unordered_set<std::string> initialized;
  for (const auto& tensor : proto.initializer()) initialized.insert(tensor.name());
  for (const auto& sparse : proto.sparse_initializer()) initialized.insert(sparse.values().name());
  for (const auto& info : proto.input()) {
    kept::InfoSlot& slot = *kept_.add_input();
    slot.set_name(info.name());
    if (initialized.contains(info.name())) {
      if (!listed_initializers_.emplace(info.name(), info).second)
        fail("import", "{}: '{}' is listed twice as an input", where_, info.name());
      continue;
    }
    Value* value = define(info.name(), ValueKind::input, "an input");
    describe(*value, info, slot);
    graph_->inputs.push_back(value);
  }
  proto.clear_input();
}

void GraphReader::add_initializer(const std::string& name, Tensor data, const kept::Initializer& rest) {
  Value* value = define(name, kind_of(data), "an initializer");
  value->type = {data.dtype, Shape(data.dims.begin(), data.dims.end())};
  value->data = value->kind == ValueKind::state ? std::move(data) : aligned(std::move(data));
  value->data_extra = rest.SerializeAsString();
  if (auto listed = listed_initializers_.find(name); listed != listed_initializers_.end()) {
    kept::InfoSlot unused;
    describe(*value, listed->second, unused);
  }
}

void GraphReader::read_initializers(onnx::GraphProto& proto, const CutRaw& cut_raw) {
  for (int i = 0; i < proto.initializer_size(); ++i) {
    kept::Initializer rest;
    rest.mutable_rest()->Swap(proto.mutable_initializer(i));
    std::string name = rest.rest().name();
    Tensor data = take_tensor(*rest.mutable_rest(), files_, name, cut_raw ? cut_raw(i) : std::nullopt);
    rest.mutable_rest()->clear_name();
    if (rest.rest().ByteSizeLong() == 0) rest.clear_rest();
    add_initializer(name, std::move(data), rest);
    kept_.add_initializer(name);
  }
  for (auto& sparse : *proto.mutable_sparse_initializer()) {
    std::string name = sparse.values().name();
    Tensor data = densify(sparse, files_, name);
    kept::Initializer rest;
    rest.mutable_sparse()->Swap(&sparse);
    load_external_within(*rest.mutable_sparse(), files_);
    add_initializer(name, std::move(data), rest);
    kept_.add_sparse_initializer(name);
  }
  proto.clear_initializer();
  proto.clear_sparse_initializer();
}

void GraphReader::read_outputs(onnx::GraphProto& proto) {
  for (const auto& info : proto.output()) {
    Value* value = resolve(info.name());
    if (!value)
      fail("import", "{}: the output '{}' is not defined by any node, input or initializer", where_, info.name());
    kept::InfoSlot& slot = *kept_.add_output();
    slot.set_name(info.name());
    describe(*value, info, slot);
    graph_->outputs.push_back(value);
  }
  proto.clear_output();
}

void GraphReader::read_infos(const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& infos) {
  for (const auto& info : infos) {
    kept::InfoSlot& slot = *kept_.add_value_info();
    slot.set_name(info.name());
    if (Value* value = graph_->find(info.name()))
      describe(*value, info, slot);
    else
      *slot.mutable_own() = info;
  }
}

void GraphReader::add_results(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  for (const auto& node : nodes)
    for (const std::string& output : node.output())
      if (!output.empty()) define(output, ValueKind::result, "a result of " + label_of(node));
}

void GraphReader::read_nodes(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  for (auto& node : nodes) read_node(node);
}

void GraphReader::read_node(onnx::NodeProto& proto) {
  auto node = std::make_unique<Node>();
  std::string label = label_of(proto);
  if (proto.op_type().empty()) fail("import", "{}: a node names no operator; the file is damaged", where_);
  auto operand = [&](const std::string& name) -> Value* {
    if (Value* value = resolve(name)) return value;
    fail("import", "{}: {} reads '{}', which no node, input or initializer defines; the file is damaged", where_, label,
         name);
  };
  for (const std::string& input : proto.input()) node->inputs.push_back(input.empty() ? nullptr : operand(input));
  for (const std::string& output : proto.output())
    node->outputs.push_back(output.empty() ? nullptr : graph_->find(output));
  const bool standard = proto.domain().empty() || proto.domain() == "ai.onnx";
  if (standard && std::all_of(node->outputs.begin(), node->outputs.end(), [](const Value* value) { return !value; }))
    fail("import", "{}: {} has no result, but every operator of ONNX has one; the file is damaged", where_, label);
  proto.clear_input();
  proto.clear_output();

  std::unordered_set<std::string> captured;
  auto read_nested = [&](onnx::GraphProto& nested) -> std::unique_ptr<Graph> {
    GraphReader reader(files_, fmt::format("graph '{}' of {}", nested.name(), label), this);
    auto graph = reader.read(nested);
    for (const std::string& name : reader.captured_)
      if (captured.insert(name).second) node->captures.push_back(name);
    return graph;
  };
  std::unordered_set<std::string> named;
  for (auto& attribute : *proto.mutable_attribute()) {
    node->attributes.push_back(take_attribute(attribute, files_, label, read_nested));
    if (!named.insert(node->attributes.back().name).second)
      fail("import", "{}: {} has the attribute '{}' twice", where_, label, node->attributes.back().name);
  }
  for (const std::string& name : node->captures) node->inputs.push_back(operand(name));
  proto.clear_attribute();

  node->op_type = proto.op_type();
  proto.clear_op_type();
  node->name = proto.name();
  if (!node->name.empty()) proto.clear_name();
  node->overload = proto.overload();
  if (!node->overload.empty()) proto.clear_overload();
  if (proto.domain() != "ai.onnx") {
    node->domain = proto.domain();
    if (!node->domain.empty()) proto.clear_domain();
  }
  node->extra = proto.SerializeAsString();
  graph_->adopt_node(std::move(node));
}

void GraphReader::finish() {
  graph_->extra = kept_.SerializeAsString();
  graph_->sort();
}

std::unique_ptr<Graph> GraphReader::read(onnx::GraphProto& proto, const CutRaw& cut_raw) {
  read_inputs(proto);
  read_initializers(proto, cut_raw);
  add_results(proto.node());
  read_outputs(proto);
  read_infos(proto.value_info());
  proto.clear_value_info();
  read_nodes(*proto.mutable_node());
  proto.clear_node();
  graph_->name = proto.name();
  if (!graph_->name.empty()) proto.clear_name();
  kept_.mutable_rest()->Swap(&proto);
  finish();
  return std::move(graph_);
}

std::unique_ptr<Graph> GraphReader::read_body(onnx::FunctionProto& proto) {
  graph_->name = proto.name();
  for (const std::string& input : proto.input()) graph_->inputs.push_back(define(input, ValueKind::input, "an input"));
  add_results(proto.node());
  for (const std::string& output : proto.output()) {
    Value* value = graph_->find(output);
    if (!value) fail("import", "{}: the output '{}' is not defined by any node or input", where_, output);
    graph_->outputs.push_back(value);
  }
  read_infos(proto.value_info());
  read_nodes(*proto.mutable_node());
  proto.clear_input();
  proto.clear_output();
  proto.clear_value_info();
  proto.clear_node();
  finish();
  return std::move(graph_);
}

}  // namespace tessera::codec
