#include "tessera/ops/op.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/one_program.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

using Key = std::pair<std::string_view, std::string_view>;

const std::map<Key, OpDef>& registry() {
  static const std::map<Key, OpDef> ops = [] {
    std::map<Key, OpDef> all;
    for (auto family :
         {elementwise_ops, shape_ops,     movement_ops,      extent_ops,       resize_ops,        generator_ops,
          indexing_ops,    reduction_ops, normalization_ops, matmul_ops,       einsum_ops,        convolution_ops,
          pooling_ops,     recurrent_ops, attention_ops,     quantization_ops, interpolation_ops, square_matrix_ops,
          random_ops,      cache_ops,     quantized_ops,     experts_ops,      flow_ops})
      for (OpDef& op : family())
        check(all.emplace(Key{op.domain, op.type}, op).second, "an operator is registered once");
    return all;
  }();
  return ops;
}

struct KeyHash {
  size_t operator()(const Key& key) const {
    const std::hash<std::string_view> hash;
    return hash(key.first) * 31 + hash(key.second);
  }
};

// The same by hash: planning asks for the operator of every node many times.
const std::unordered_map<Key, const OpDef*, KeyHash>& index() {
  static const std::unordered_map<Key, const OpDef*, KeyHash> by_key = [] {
    std::unordered_map<Key, const OpDef*, KeyHash> all;
    for (const auto& [key, op] : registry()) all.emplace(key, &op);
    return all;
  }();
  return by_key;
}

}  // namespace

const OpDef* find_op(std::string_view type, std::string_view domain) {
  const auto found = index().find({domain, type});
  return found == index().end() ? nullptr : found->second;
}

bool has_wide_sums(const Node& node) {
  const OpDef* op = find_op(node.op_type, node.domain);
  return op && op->wide_sums;
}

bool reads_values(const Node& node, size_t operand) {
  const OpDef* op = find_op(node.op_type, node.domain);
  return op && std::find(op->values.begin(), op->values.end(), operand) != op->values.end();
}

bool reads_elements(const Node& node, size_t operand) {
  const OpDef* op = find_op(node.op_type, node.domain);
  return !op || std::find(op->elements_unread.begin(), op->elements_unread.end(), operand) == op->elements_unread.end();
}

Moves moves_of(const Node& node) {
  const OpDef* op = find_op(node.op_type, node.domain);
  if (!op || op->moves == Moves::nothing) return Moves::nothing;
  // Layout steps of elements of less than a byte are not shared past a node: they may not fill bytes behind it.
  for (const auto* values : {&node.inputs, &node.outputs})
    for (const Value* value : *values)
      if (value && bits_of(value->dtype()) % 8 != 0) return Moves::nothing;
  return op->moves;
}

bool is_layout_step(const Node& node) {
  const OpDef* op = find_op(node.op_type, node.domain);
  return op && op->layout_step;
}

std::vector<const OpDef*> all_ops() {
  std::vector<const OpDef*> ops;
  for (const auto& [key, op] : registry()) ops.push_back(&op);
  return ops;
}

bool is_data_sized(const Node& node) {
  constexpr std::array<std::string_view, 4> kTypes = {"NonZero", "Compress", "Unique", "NonMaxSuppression"};
  return node.domain.empty() && std::find(kTypes.begin(), kTypes.end(), node.op_type) != kTypes.end();
}

const OpDef& op_of(const Node& node) {
  const OpDef* op = find_op(node.op_type, node.domain);
  if (!op && is_data_sized(node))
    throw NotInOneProgram("operators", node,
                          "the size of its result depends on data, so that no program can hold the whole model; "
                          "tessera run compiles it in parts while it runs");
  if (!op && node.domain == "com.microsoft.nchwc")
    fail("operators",
         "{}: ONNX Runtime laid out images and weights for the CPU on which it saved the model; let it save with "
         "ORT_ENABLE_EXTENDED, which leaves layouts alone, instead of ORT_ENABLE_ALL",
         node.label());
  if (!op)
    fail("operators",
         "{}: the operator {}{}{} is not supported yet; export the model without it, or decompose it into "
         "supported operators (`inspect` lists the coverage)",
         node.label(), node.domain, node.domain.empty() ? "" : ".", node.op_type);
  return *op;
}

void infer_results(const OpDef& op, Node& node) {
  // What a file declares of a first result may be all that is known of its shape; of others it counts for nothing.
  for (size_t r = 1; r < node.outputs.size(); ++r)
    if (node.outputs[r]) node.outputs[r]->type = {};
  op.infer(node);
  for (size_t r = 0; r < node.outputs.size(); ++r)
    if (const Value* result = node.outputs[r]; result && (result->dtype() == DType::undefined || !result->has_shape()))
      fail_node(node, "it has a result {}, '{}', which {} does not give; leave it out", r + 1, result->name,
                node.op_type);
}

void infer_types(Graph& graph) {
  for (Value* value : graph.values_of(ValueKind::constant))
    if (!value->content && value->rank() <= 1 && value->data.count() <= 64 &&
        (is_integer(value->dtype()) || value->dtype() == DType::boolean) && bits_of(value->dtype()) >= 8) {
      auto elements = value->data.to_int64();
      value->content.emplace(elements.begin(), elements.end());
    }
  for (const auto& node : graph.nodes()) infer_results(op_of(*node), *node);
}

Expr flops_of(const Node& node) {
  const OpDef* op = find_op(node.op_type, node.domain);
  return op && op->flops ? op->flops(node) : Expr(0);
}

Value* Localizer::emit(std::string_view op_type, std::vector<Value*> operands, TensorType type,
                       std::vector<Attribute> attributes, std::string_view domain) {
  std::string name = node.output() ? node.output()->name : std::string(op_type);
  Node* added = graph.add_node(op_type, std::move(operands), {name}, domain);
  added->attributes = std::move(attributes);
  added->outputs[0]->type = std::move(type);
  return added->outputs[0];
}

std::vector<Value*> Localizer::same() {
  auto local = std::make_unique<Node>(node);
  local->inputs = inputs;
  for (size_t i = 0; i < local->outputs.size(); ++i)
    if (local->outputs[i]) local->outputs[i] = graph.add_value(node.outputs[i]->name, ValueKind::result, outputs[i]);
  if (has_wide_sums(node) && outputs[0].dtype == DType::float32 && bits_of(inputs[0]->dtype()) == 16) {
    local->domain = "tessera";
    local->set("accumulate", std::string("float32"));
  }
  return graph.adopt_node(std::move(local))->outputs;
}

std::vector<Value*> Localizer::same_with(size_t index, std::vector<Expr> content, bool scalar) {
  inputs.at(index) = graph.add_expression(node.outputs[0]->name + "_shape", std::move(content), scalar);
  return same();
}

Value* on_first(Graph& graph, Value* value, const Expr& place) {
  const auto emit = [&](std::string_view type, std::vector<Value*> operands, TensorType result) {
    Value* made = graph.add_node(type, std::move(operands), {value->name + ".first"})->outputs[0];
    made->type = std::move(result);
    return made;
  };
  Value* at = graph.add_expression(value->name + ".shard", {place}, true);
  Value* is_first = emit("Equal", {at, graph.constant_int64({0}, true)}, {DType::boolean, Shape{}});
  return emit("Where", {is_first, value, graph.constant_scalar(value->dtype(), 0)}, value->type);
}

Value* sliced(Localizer& local, Value* value, const std::vector<Expr>& starts, const std::vector<Expr>& ends,
              const std::vector<int64_t>& axes, const Shape& shape) {
  const std::string& name = local.node.outputs[0]->name;
  Value* from = local.graph.add_expression(name + ".start", starts);
  Value* to = local.graph.add_expression(name + ".end", ends);
  return local.emit("Slice", {value, from, to, local.graph.constant_int64(axes)}, {value->dtype(), shape});
}

Value* Localizer::on_first_shard(Value* addend, int f) {
  return on_first(graph, addend, places.at(f));  // the offset does not tell the shards of an empty factor apart
}

bool Localizer::is_split_halo(size_t operand, size_t dim) const {
  const DimFactors& factors = rule.operands.at(operand).at(dim);
  return factors.size() == 1 && split[factors[0]] && traits_of(rule.factors[factors[0]].kind).by_window;
}

int Localizer::factor(std::string_view name) const {
  for (size_t i = 0; i < rule.factors.size(); ++i)
    if (rule.factors[i].name == name) return static_cast<int>(i);
  return -1;
}

}  // namespace tessera::ops
