#include "tessera/onnx/graph_writer.h"

#include <algorithm>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/ir/on_demand.h"
#include "tessera/onnx/attribute_codec.h"
#include "tessera/onnx/external_files.h"
#include "tessera/onnx/external_writer.h"
#include "tessera/onnx/tensor_codec.h"
#include "tessera/onnx/type_codec.h"

namespace tessera::codec {
namespace {

bool is_used(const Graph& graph, const Value& value) {
  return !value.uses.empty() || graph.is_output(&value);
}

/// Whether a tensor that the file stored as a sparse one still has the same elements.
bool still_sparse(onnx::SparseTensorProto sparse, const Tensor& data, const std::string& name) {
  store_external_within(sparse, nullptr);
  ExternalFiles nowhere({});
  Tensor dense = densify(sparse, nowhere, name);
  return dense.dtype == data.dtype && dense.dims == data.dims &&
         std::equal(dense.data, dense.data + dense.bytes, data.data, data.data + data.bytes);
}

}  // namespace

Tensor initial_data(const Value& value) {
  if (value.kind != ValueKind::expression) return made_whole(value.data);
  std::vector<int64_t> elements;
  for (const Expr& element : *value.content) {
    check(element.is_constant(),
          fmt::format("'{}' = {} has been turned into nodes before the model is written", value.name, element.str()));
    elements.push_back(*element.constant());
  }
  Dims dims = value.has_shape() && value.rank() == 0 ? Dims{} : Dims{static_cast<int64_t>(elements.size())};
  return Tensor::of(DType::int64, dims, elements);
}

GraphWriter::GraphWriter(const Graph& graph, ExternalWriter* external, bool all_infos, const CaptureNames& captures)
    : graph_(graph), external_(external), all_infos_(all_infos) {
  check(kept_.ParseFromString(graph.extra), "what was kept of a graph can be read back");
  rename_captures(captures);
}

void GraphWriter::rename_captures(const CaptureNames& captures) {
  std::unordered_set<const Value*> inputs(graph_.inputs.begin(), graph_.inputs.end());
  for (const auto& [inner, outer] : captures) {
    if (inner == outer) continue;
    const Value* value = graph_.find(inner);
    if (!value || value->kind != ValueKind::input || inputs.contains(value)) continue;
    check(!graph_.find(outer),
          fmt::format("graph '{}' can use the outer value '{}' under its new name", graph_.name, outer));
    renamed_[value] = outer;
  }
}

const std::string& GraphWriter::name_of(const Value& value) const {
  auto renamed = renamed_.find(&value);
  return renamed == renamed_.end() ? value.name : renamed->second;
}

bool GraphWriter::is_initializer(const Value& value) const {
  return value.has_data() || (value.kind == ValueKind::expression && is_used(graph_, value));
}

void GraphWriter::write_info(const Value& value, const kept::InfoSlot* slot, onnx::ValueInfoProto& info) {
  if (!slot || !slot->has_own()) return put_info(value, name_of(value), info);
  // A second entry about a value stays as it was, unless the value's type has changed since.
  info = slot->own();
  onnx::ValueInfoProto first;
  check(first.ParseFromString(value.extra), "what was kept of a value can be read back");
  if (first.has_type() && !value.has_data() && type_of(first) != value.type) put_type(value.type, info);
  info.set_name(name_of(value));
}

void GraphWriter::write_inputs(onnx::GraphProto& proto) {
  // Initializers that the file also lists as inputs keep their place if the true inputs are unchanged.
  std::vector<const Value*> order;
  for (const auto& slot : kept_.input())
    if (const Value* value = graph_.find(slot.name()); value && (value->has_data() || value->kind == ValueKind::input))
      order.push_back(value);
  std::vector<const Value*> inputs(graph_.inputs.begin(), graph_.inputs.end()), before, listed;
  for (const Value* value : order) (value->has_data() ? listed : before).push_back(value);
  if (before != inputs) {
    order = inputs;
    order.insert(order.end(), listed.begin(), listed.end());
  }
  for (const Value* value : order) put_info(*value, name_of(*value), *proto.add_input());
}

void GraphWriter::write_outputs(onnx::GraphProto& proto) {
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    const Value& value = *graph_.outputs[i];
    // Two outputs may be one value: the slot at the same place is the right one if it has that name.
    const kept::InfoSlot* slot = nullptr;
    if (static_cast<int>(i) < kept_.output_size() && kept_.output(static_cast<int>(i)).name() == value.name)
      slot = &kept_.output(static_cast<int>(i));
    write_info(value, slot, *proto.add_output());
  }
}

void GraphWriter::write_initializer(const Value& value, onnx::GraphProto& proto) {
  if (const ExternalLocation* stored = external_ ? external_->stored(value.name) : nullptr) {
    auto* tensor = proto.add_initializer();
    tensor->set_name(name_of(value));
    refer_to_stored(value.data, {stored->file, stored->offset, value.data.bytes}, *tensor);
    return;
  }
  Tensor data = initial_data(value);
  kept::Initializer kept;
  check(kept.ParseFromString(value.data_extra), "what was kept of an initializer can be read back");
  if (kept.has_sparse() && still_sparse(kept.sparse(), data, value.name)) {
    auto* sparse = proto.add_sparse_initializer();
    sparse->Swap(kept.mutable_sparse());
    sparse->mutable_values()->set_name(name_of(value));
    store_external_within(*sparse, external_);
    return;
  }
  auto* tensor = proto.add_initializer();
  tensor->Swap(kept.mutable_rest());
  tensor->set_name(name_of(value));
  put_tensor(data, *tensor, external_);
}

void GraphWriter::write_initializers(onnx::GraphProto& proto) {
  std::unordered_set<const Value*> written;
  auto write_named = [&](const std::string& name) {
    const Value* value = graph_.find(name);
    if (value && is_initializer(*value) && written.insert(value).second) write_initializer(*value, proto);
  };
  for (const std::string& name : kept_.initializer()) write_named(name);
  for (const std::string& name : kept_.sparse_initializer()) write_named(name);
  for (const auto& value : graph_.values())
    if (is_initializer(*value) && !written.contains(value.get())) write_initializer(*value, proto);
}

void GraphWriter::write_infos(Infos& infos, const Infos& listed) {
  std::unordered_set<std::string> told;
  for (const auto& info : listed) told.insert(info.name());
  for (const auto& slot : kept_.value_info()) {
    const Value* value = graph_.find(slot.name());
    if (value && (!value->extra.empty() || !slot.has_own())) {
      write_info(*value, &slot, *infos.Add());
      told.insert(name_of(*value));
    } else if (slot.has_own()) {
      *infos.Add() = slot.own();
    }
  }
  for (const auto& value : graph_.values()) {
    bool has_type = value->type.dtype != DType::undefined;
    bool wanted = !value->extra.empty() || (all_infos_ && has_type && !value->has_data());
    bool is_captured = value->kind == ValueKind::input;
    bool is_unused_expression = value->kind == ValueKind::expression && !is_used(graph_, *value);
    if (!wanted || is_captured || is_unused_expression || told.contains(name_of(*value))) continue;
    put_info(*value, name_of(*value), *infos.Add());
  }
}

void GraphWriter::write_nodes(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  nodes.Reserve(static_cast<int>(graph_.nodes().size()));
  for (const auto& node : graph_.nodes()) write_node(*node, *nodes.Add());
}

void GraphWriter::write_node(const Node& node, onnx::NodeProto& proto) {
  check(proto.ParseFromString(node.extra), "what was kept of a node can be read back");
  for (size_t i = 0; i < node.operand_count(); ++i)
    proto.add_input(node.inputs[i] ? name_of(*node.inputs[i]) : std::string());
  for (const Value* output : node.outputs) proto.add_output(output ? name_of(*output) : std::string());
  proto.set_op_type(node.op_type);
  if (!node.name.empty()) proto.set_name(node.name);
  if (!node.domain.empty()) proto.set_domain(node.domain);
  if (!node.overload.empty()) proto.set_overload(node.overload);
  CaptureNames captures;
  for (size_t i = 0; i < node.captures.size(); ++i)
    captures[node.captures[i]] = name_of(*node.inputs[node.operand_count() + i]);
  auto write_nested = [&](const Graph& nested, onnx::GraphProto& into) {
    GraphWriter(nested, external_, all_infos_, captures).write(into);
  };
  for (const Attribute& attribute : node.attributes)
    put_attribute(attribute, *proto.add_attribute(), external_, write_nested);
}

void GraphWriter::write(onnx::GraphProto& proto) {
  proto = kept_.rest();
  if (!graph_.name.empty()) proto.set_name(graph_.name);
  write_nodes(*proto.mutable_node());
  write_initializers(proto);
  write_inputs(proto);
  write_outputs(proto);
  Infos listed = proto.input();
  listed.MergeFrom(proto.output());
  write_infos(*proto.mutable_value_info(), listed);
}

void GraphWriter::write_body(onnx::FunctionProto& proto) {
  for (const Value* input : graph_.inputs) proto.add_input(input->name);
  for (const Value* output : graph_.outputs) proto.add_output(output->name);
  // Functions have no initializers: constants are nodes there.
  for (const auto& value : graph_.values()) {
    if (!is_initializer(*value)) continue;
    onnx::NodeProto& node = *proto.add_node();
    node.set_op_type("Constant");
    node.add_output(value->name);
    put_attribute({"value", initial_data(*value), ""}, *node.add_attribute(), external_, {});
  }
  write_nodes(*proto.mutable_node());
  write_infos(*proto.mutable_value_info(), {});
}

}  // namespace tessera::codec
