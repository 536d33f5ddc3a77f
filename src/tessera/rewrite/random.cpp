#include "tessera/rewrite/random.h"

#include <algorithm>
#include <functional>

#include "tessera/base/error.h"
#include "tessera/ir/random.h"
#include "tessera/ops/op.h"
#include "tessera/ops/random.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

// The key comes from the node as the model has it, so no rewriting changes it.
int64_t drawing_key(const Node& node) {
  if (const float* seed = node.get<float>("seed")) return random::key_of_seed(*seed);
  for (const Value* result : node.outputs)
    if (result) return random::key_of_name(result->name);
  return 0;
}

// The shape in the node's attribute, or the shape of its operand for RandomNormalLike and RandomUniformLike.
Value* shape_for(Graph& graph, const Node& node, bool like) {
  if (like) return shape_operand(graph, node.input(0)->shape());
  const auto* stated = node.get<std::vector<int64_t>>("shape");
  if (!stated) fail("lower", "{}: it has no attribute 'shape'; the file is damaged", node.label());
  return graph.constant_int64(*stated);
}

Value* filling(Graph& graph, const Node& node, Value* shape, DType dtype, std::string_view type = "RandomUniform") {
  Node* made = graph.add_node(type, {shape}, {node.output()->name + ".random"}, ops::kRandomDomain, &node);
  made->set(random::kKey, drawing_key(node));
  made->set("dtype", static_cast<int64_t>(dtype));
  for (const char* parameter : {"low", "high", "mean", "scale"})
    if (const float* value = node.get<float>(parameter)) made->set(parameter, *value);
  ops::infer_results(ops::op_of(*made), *made);
  return made->outputs[0];
}

DType stated_dtype(const Node& node, DType otherwise) {
  return static_cast<DType>(node.get_int("dtype", static_cast<int64_t>(otherwise)));
}

Value* cast(Graph& graph, Value* value, DType to, const Node& before) {
  if (value->dtype() == to) return value;
  return emit(graph, "Cast", {value}, &before, {attribute("to", static_cast<int64_t>(to))});
}

// Random numbers are float32, or float64 if they are compared with float64.
DType compared_in(const Value& operand) {
  return operand.dtype() == DType::float64 ? DType::float64 : DType::float32;
}

// An element is 1 if a uniform number is below its probability.
Value* bernoulli(Graph& graph, const Node& node) {
  Value* probability = node.input(0);
  const DType dtype = compared_in(*probability);
  Value* drawn = filling(graph, node, shape_operand(graph, probability->shape()), dtype);
  Value* below = emit(graph, "Less", {drawn, cast(graph, probability, dtype, node)}, &node);
  return cast(graph, below, stated_dtype(node, probability->dtype()), node);
}

// Each sample is the class for which log probability - ln(-ln uniform) is largest (Gumbel, 1954: the largest of
// independent variables of this distribution is each class with its probability).
Value* multinomial(Graph& graph, const Node& node) {
  Value* scores = node.input(0);
  if (scores->rank() != 2)
    fail("lower", "{}: its input has the shape {}; it must be [batch, classes]", node.label(),
         to_string(scores->shape()));
  const DType dtype = compared_in(*scores);
  const Expr samples = node.get_int("sample_size", 1);
  const Shape& shape = scores->shape();
  Value* drawn = filling(graph, node, shape_operand(graph, {shape[0], samples, shape[1]}), dtype);
  Value* inner = emit(graph, "Neg", {emit(graph, "Log", {drawn}, &node)}, &node);
  Value* noise = emit(graph, "Log", {inner}, &node);
  Value* each = reshaped(graph, cast(graph, scores, dtype, node), {shape[0], 1, shape[1]}, &node);
  Value* sum = emit(graph, "Sub", {each, noise}, &node);
  Value* best = emit(graph, "ArgMax", {sum}, &node, {attribute("axis", int64_t{2}), attribute("keepdims", int64_t{0})});
  return cast(graph, best, stated_dtype(node, DType::int32), node);
}

Value* uniform_or_normal(Graph& graph, const Node& node) {
  const bool like = node.op_type.ends_with("Like");
  const std::string_view type = node.op_type.starts_with("RandomUniform") ? "RandomUniform" : "RandomNormal";
  const DType dtype = stated_dtype(node, like ? node.input(0)->dtype() : DType::float32);
  return filling(graph, node, shape_for(graph, node, like), dtype, type);
}

struct Lowered {
  std::string_view type;
  size_t operands;
  Value* (*lower)(Graph&, const Node&);
};

constexpr Lowered kLowered[] = {
    {"RandomUniform", 0, uniform_or_normal},
    {"RandomNormal", 0, uniform_or_normal},
    {"RandomUniformLike", 1, uniform_or_normal},
    {"RandomNormalLike", 1, uniform_or_normal},
    {"Bernoulli", 1, bernoulli},
    {"Multinomial", 1, multinomial},
};

bool is_false(const Value* flag) {
  const auto known = scalar_of(flag);
  return known && *known == 0;
}

void for_each_graph(OnnxModel& model, const std::function<void(Graph&)>& visit) {
  visit(*model.graph);
  for (Function& function : model.functions) visit(*function.body);
}

}  // namespace

void key_dropout(OnnxModel& model) {
  Graph& graph = *model.graph;
  for (Node* node : nodes_of(graph)) {
    Value* training = node->is("Dropout") ? node->input(2) : nullptr;
    if (!training || is_false(training)) continue;
    const int64_t key = drawing_key(*node);
    node->domain = ops::kRandomDomain;
    node->remove_attribute("seed");
    node->set(random::kKey, key);
    if (scalar_of(training)) graph.set_input(node, 2, nullptr);
  }
}

bool lower_random(Graph& graph, Node& node) {
  if (!node.domain.empty()) return false;
  for (const Lowered& known : kLowered) {
    if (known.type != node.op_type) continue;
    for (size_t i = 0; i < known.operands; ++i)
      if (!node.input(i)) fail("lower", "{}: its operand {} is missing; the file is damaged", node.label(), i);
    if (!node.output() || node.outputs.size() != 1) fail("lower", "{}: it must have exactly one result", node.label());
    Value* made = known.lower(graph, node);
    node.op_type = "Identity";
    node.attributes.clear();
    for (size_t i = 0; i < node.inputs.size(); ++i) graph.set_input(&node, i, nullptr);
    node.inputs.clear();
    graph.set_input(&node, 0, made);
    ops::infer_results(ops::op_of(node), node);
    return true;
  }
  return false;
}

int count_dropouts(OnnxModel& model, bool dropping) {
  int count = 0;
  for_each_graph(model, [&](Graph& graph) {
    for (const auto& node : graph.nodes()) {
      if (!node->is("Dropout")) continue;
      const Value* training = node->input(2);
      count += (training && !is_false(training)) == dropping;
    }
  });
  return count;
}

void switch_dropouts(OnnxModel& model, bool dropping) {
  for_each_graph(model, [&](Graph& graph) {
    for (Node* node : nodes_of(graph)) {
      if (!node->is("Dropout")) continue;
      graph.set_input(node, 2, dropping ? graph.constant_scalar(DType::boolean, 1) : nullptr);
    }
  });
}

void seed_random(Graph& graph, uint64_t seed) {
  for (const auto& node : graph.nodes()) {
    const ops::OpDef* op = ops::find_op(node->op_type, node->domain);
    if (op && op->counter) node->set(random::kKey, random::seeded(seed, node->get_int(random::kKey, 0)));
  }
}

}  // namespace tessera::rewrite
