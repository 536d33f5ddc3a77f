#include "tessera/train/wide_sums.h"

#include <algorithm>
#include <numeric>

#include "tessera/ops/library/node_builder.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"

namespace tessera::train {
namespace {

constexpr std::string_view kAccumulate = "accumulate", kDomain = "tessera";

bool is_narrow(const Value* value) {
  return value && is_float(value->dtype()) && bits_of(value->dtype()) == 16;
}

bool is_sum(const Node& node) {
  return node.is("Add") || node.is("Sum");
}

bool adds_to_places(const Node& node) {
  return (node.is("ScatterND") || node.is("ScatterElements")) && node.get_string("reduction", "none") == "add";
}

// Whether there is such an operator that gives float32 sums.
bool gives_wide_sums(const Node& node) {
  return ops::has_wide_sums(node) && ops::find_op(node.op_type, kDomain);
}

// Operators that give all elements of their first operand.
bool keeps_all(const Node& node) {
  const ops::Moves moves = ops::moves_of(node);
  return node.domain.empty() && !node.is("Cast") && (moves == ops::Moves::all || moves == ops::Moves::in_order);
}

// The operands whose elements, or sums of them, the node gives: the parts of a weight's gradient, and zeros around it.
std::vector<size_t> data_of(const Node& node) {
  const auto up_to = [](size_t count) {
    std::vector<size_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
  };
  if (is_sum(node) || node.is("Concat")) return up_to(node.inputs.size());
  if (node.is("Pad")) return node.input(2) ? std::vector<size_t>{0, 2} : std::vector<size_t>{0};
  if (node.is("Where")) return {1, 2};
  return keeps_all(node) ? up_to(1) : std::vector<size_t>{};
}

class Widening {
 public:
  explicit Widening(Graph& graph) : graph_(graph) {}

  // Whether the 16-bit value can be made in float32, and something gains bits by it.
  bool can(const Value* value) const {
    const Node* node = value->producer;
    if (!node) return false;
    if (is_rounding(*node)) return true;
    if (value->uses.size() > 1 || graph_.is_output(value)) return false;
    if (gives_wide_sums(*node) || adds_to_places(*node)) return true;
    const std::vector<size_t> data = data_of(*node);
    return std::any_of(data.begin(), data.end(), [&](size_t i) { return can(node->inputs[i]); });
  }

  // Where the 16-bit value is made: at the graph's end, what the products read would have to be held until then.
  Value* made(Value* value) {
    Node& node = *value->producer;
    if (is_rounding(node)) return node.inputs[0];
    ops::NodeBuilder before(graph_, "wide", &node);
    std::vector<Value*> operands = node.inputs;
    std::vector<Attribute> attributes = node.attributes;
    std::string_view domain;
    if (gives_wide_sums(node)) {
      attributes.push_back({std::string(kAccumulate), std::string("float32"), ""});
      domain = kDomain;
    } else if (adds_to_places(node)) {
      for (size_t i : {0, 2}) operands[i] = before.cast(operands[i], DType::float32);
    } else {
      for (size_t i : data_of(node))
        operands[i] = can(operands[i]) ? made(operands[i]) : before.cast(operands[i], DType::float32);
    }
    Node* wide = graph_.add_node(node.op_type, std::move(operands), {value->name + ".float32"}, domain, &node);
    wide->attributes = std::move(attributes);
    ops::infer_results(ops::op_of(*wide), *wide);
    return wide->outputs[0];
  }

 private:
  static bool is_rounding(const Node& node) { return node.is("Cast") && node.inputs[0]->dtype() == DType::float32; }

  Graph& graph_;
};

}  // namespace

Value* with_wide_sums(Graph& graph, Value* gradient) {
  Node* node = gradient->producer;
  if (!node || gradient->dtype() != DType::float32) return gradient;
  if (is_sum(*node))
    for (size_t i = 0; i < node->inputs.size(); ++i) graph.set_input(node, i, with_wide_sums(graph, node->inputs[i]));
  if (!node->is("Cast") || !is_narrow(node->inputs[0])) return gradient;
  Widening widening(graph);
  return widening.can(node->inputs[0]) ? widening.made(node->inputs[0]) : gradient;
}

void cast_operands_of_wide_sums(Graph& graph) {
  for (Node* node : rewrite::nodes_of(graph)) {
    if (node->domain != kDomain || !node->find_attribute(kAccumulate)) continue;
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (!is_narrow(node->inputs[i])) continue;
      const Attribute to_float32{"to", static_cast<int64_t>(DType::float32), ""};
      graph.set_input(node, i, rewrite::emit(graph, "Cast", {node->inputs[i]}, node, {to_float32}));
    }
    node->domain.clear();
    node->remove_attribute(kAccumulate);
  }
}

}  // namespace tessera::train
