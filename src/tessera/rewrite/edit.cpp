#include "tessera/rewrite/edit.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/op.h"

namespace tessera::rewrite {

Node* emit_node(Graph& graph, std::string_view op_type, std::vector<Value*> operands, const Node* before,
                std::vector<Attribute> attributes, std::string_view name, size_t results) {
  std::vector<std::string> names(results, std::string(name.empty() ? op_type : name));
  if (Value* old = graph.find(name); old && before && old->producer == before && !graph.is_output(old))
    graph.rename(old, old->name + "_before");
  Node* node = graph.add_node(op_type, std::move(operands), names, "", before);
  node->attributes = std::move(attributes);
  ops::op_of(*node).infer(*node);
  return node;
}

Value* emit(Graph& graph, std::string_view op_type, std::vector<Value*> operands, const Node* before,
            std::vector<Attribute> attributes, std::string_view name) {
  return emit_node(graph, op_type, std::move(operands), before, std::move(attributes), name)->outputs[0];
}

Attribute attribute(std::string_view name, AttributeValue value) {
  return {std::string(name), std::move(value), ""};
}

bool replace(Graph& graph, Value* from, Value* to) {
  if (from == to) return false;
  if (from->has_shape() && to->has_shape() && from->rank() != to->rank()) return false;
  if (!graph.is_output(from)) {
    graph.replace_uses(from, to);
    return true;
  }
  if (to->kind != ValueKind::result || graph.is_output(to)) return false;
  graph.replace_uses(from, to);
  std::string name = from->name;
  graph.rename(from, name + "_before");
  graph.rename(to, name);
  if (to->extra.empty()) to->extra = from->extra;
  return true;
}

std::vector<Node*> splice(Graph& graph, const Graph& body, std::map<const Value*, Value*>& known, const Node* before,
                          const std::string& prefix) {
  const auto named = [&](const std::string& name) { return prefix.empty() ? name : prefix + "/" + name; };
  for (const auto& value : body.values()) {
    if (known.contains(value.get())) continue;
    Value* twin = graph.add_value(named(value->name), value->kind, value->type);
    twin->data = value->data;
    twin->content = value->content;
    twin->extra = value->extra;
    twin->data_extra = value->data_extra;
    known[value.get()] = twin;
  }
  std::vector<Node*> made;
  for (const auto& node : body.nodes()) {
    auto twin = std::make_unique<Node>(*node);
    if (!twin->name.empty()) twin->name = named(twin->name);
    for (Value*& operand : twin->inputs) operand = operand ? known.at(operand) : nullptr;
    for (Value*& result : twin->outputs) result = result ? known.at(result) : nullptr;
    made.push_back(graph.adopt_node(std::move(twin), before));
  }
  return made;
}

Node* node_after(const Graph& graph, const Node* node) {
  const auto found =
      std::find_if(graph.nodes().begin(), graph.nodes().end(), [&](const auto& other) { return other.get() == node; });
  return found == graph.nodes().end() || found + 1 == graph.nodes().end() ? nullptr : (found + 1)->get();
}

std::vector<Node*> nodes_of(const Graph& graph) {
  std::vector<Node*> nodes;
  nodes.reserve(graph.nodes().size());
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  return nodes;
}

Value* shape_operand(Graph& graph, const Shape& shape) {
  if (auto extents = constants_of(shape)) return graph.constant_int64(*extents);
  return graph.add_expression("shape", shape);
}

Value* reshaped(Graph& graph, Value* x, const Shape& shape, const Node* before) {
  if (x->shape() == shape) return x;
  return emit(graph, "Reshape", {x, shape_operand(graph, shape)}, before, {attribute("allowzero", int64_t{1})},
              x->name + "_view");
}

Value* expanded(Graph& graph, Value* x, const Shape& shape, const Node* before) {
  if (x->shape() == shape) return x;
  return emit(graph, "Expand", {x, shape_operand(graph, shape)}, before, {}, x->name + "_expanded");
}

Value* transposed(Graph& graph, Value* x, const std::vector<int64_t>& permutation, const Node* before) {
  if (std::is_sorted(permutation.begin(), permutation.end())) return x;
  return emit(graph, "Transpose", {x}, before, {attribute("perm", permutation)}, x->name + "_transposed");
}

Node* made_by(const Value* value, std::string_view op_type) {
  return value && value->producer && value->producer->is(op_type) ? value->producer : nullptr;
}

std::optional<std::vector<Expr>> contents(const Value* value) {
  return value ? ops::content_of(value) : std::nullopt;
}

std::optional<std::vector<int64_t>> numbers(const Value* value) {
  auto elements = contents(value);
  return elements ? constants_of(*elements) : std::nullopt;
}

namespace {

/// An integer as a double; nullopt beyond ±2^53, where a double cannot hold every integer.
template <typename T>
std::optional<double> exactly(T number) {
  constexpr double kMost = 0x1p53;
  const double wide = static_cast<double>(number);
  return wide >= -kMost && wide <= kMost ? std::optional(wide) : std::nullopt;
}

}  // namespace

std::optional<double> scalar_of(const Value* value) {
  return value && value->kind == ValueKind::constant ? scalar_of(value->data) : std::nullopt;
}

std::optional<double> scalar_of(const Tensor& data) {
  if (data.count() != 1) return std::nullopt;
  switch (data.dtype) {
    case DType::float32:
      return data.as<float>()[0];
    case DType::float64:
      return data.as<double>()[0];
    case DType::float16:
      return static_cast<float>(data.as<Float16>()[0]);
    case DType::bfloat16:
      return static_cast<float>(data.as<BFloat16>()[0]);
    case DType::uint64:
      return exactly(data.as<uint64_t>()[0]);
    default:
      if ((!is_integer(data.dtype) && data.dtype != DType::boolean) || bits_of(data.dtype) < 8) return std::nullopt;
      return exactly(data.to_int64()[0]);
  }
}

bool is_scalar(const Value* value, double expected) {
  auto scalar = scalar_of(value);
  if (!scalar) return false;
  double precision = value->dtype() == DType::float16 ? 1e-3 : value->dtype() == DType::bfloat16 ? 8e-3 : 1e-6;
  return std::abs(*scalar - expected) <= precision * std::abs(expected);
}

bool used_once(const Graph& graph, const Value* value) {
  return value->uses.size() == 1 && !graph.is_output(value);
}

int64_t axis_of(const Node& node, std::string_view name, int64_t otherwise, size_t rank) {
  int64_t axis = node.get_int(name, otherwise);
  int64_t count = static_cast<int64_t>(rank);
  if (axis < -count || axis >= count)
    fail("rewrite", "{}: {} = {} is not a dimension of a tensor of rank {}", node.label(), name, axis, rank);
  return axis < 0 ? axis + count : axis;
}

std::vector<int64_t> permutation_of(const Node& node) {
  std::vector<int64_t> reversed(node.inputs[0]->rank());
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return node.get_ints("perm", reversed);
}

bool is_elementwise(const Node& node) {
  const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
  return op && op->elementwise;
}

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()), Expr(1));
  for (size_t i = 0; i < result.size(); ++i) {
    Expr x = i < a.size() ? a[a.size() - 1 - i] : Expr(1);
    Expr y = i < b.size() ? b[b.size() - 1 - i] : Expr(1);
    Expr& extent = result[result.size() - 1 - i];
    if (x.is(1) || x == y)
      extent = y;
    else if (y.is(1))
      extent = x;
    else
      return std::nullopt;
  }
  return result;
}

Value* known_value(Graph& graph, const Value& value) {
  auto extents = constants_of(*value.content);
  bool scalar = value.rank() == 0;
  if (value.dtype() == DType::int64 && !extents)
    return graph.add_expression(value.name + "_value", *value.content, scalar);
  if (!extents) return nullptr;
  Dims dims = scalar ? Dims{} : Dims{static_cast<int64_t>(extents->size())};
  std::string name = value.name + "_value";
  switch (value.dtype()) {
    case DType::int64:
      return graph.add_constant(name, Tensor::of(DType::int64, dims, *extents));
    case DType::int32:
      return graph.add_constant(name,
                                Tensor::of(DType::int32, dims, std::vector<int32_t>(extents->begin(), extents->end())));
    case DType::boolean:
      return graph.add_constant(
          name, Tensor::of(DType::boolean, dims, std::vector<uint8_t>(extents->begin(), extents->end())));
    default:
      return nullptr;
  }
}

}  // namespace tessera::rewrite
