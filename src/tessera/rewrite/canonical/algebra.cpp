#include <cmath>

#include "tessera/ops/library/infer.h"
#include "tessera/rewrite/canonical/rules.h"
#include "tessera/rewrite/canonical/short_lists.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

/// Replaces the result by that operand, broadcast to its shape.
bool becomes(Graph& graph, Node* node, Value* operand) {
  if (operand->dtype() != node->outputs[0]->dtype()) return false;
  return replace(graph, node->outputs[0], expanded(graph, operand, node->outputs[0]->shape(), node));
}

bool is_exactly(const Value* value, double expected) {
  auto scalar = scalar_of(value);
  return scalar && *scalar == expected &&
         (!is_float(value->dtype()) || std::signbit(*scalar) == std::signbit(expected));
}

/// Clang 16 does not accept fractional numbers as template arguments, but enumerators of them.
enum class Neutral { minus_zero, zero, one };

constexpr double number(Neutral neutral) {
  return neutral == Neutral::minus_zero ? -0.0 : neutral == Neutral::zero ? 0.0 : 1.0;
}

/// x ∘ neutral = neutral ∘ x = x. For floats, -0 is the neutral element of addition, since -0 + 0 is 0.
template <Neutral neutral>
bool drop_neutral(Graph& graph, Node* node) {
  if (node->inputs.size() != 2) return false;
  for (size_t i : {0, 1})
    if (is_exactly(node->inputs[i], number(neutral))) return becomes(graph, node, node->inputs[1 - i]);
  return false;
}

/// x ∘ neutral = x
template <Neutral neutral>
bool drop_right_neutral(Graph& graph, Node* node) {
  return is_exactly(node->inputs[1], number(neutral)) && becomes(graph, node, node->inputs[0]);
}

/// And with a constant is the other operand or false; Or likewise.
template <bool is_and>
bool simplify_logic(Graph& graph, Node* node) {
  for (size_t i : {0, 1}) {
    auto scalar = scalar_of(node->inputs[i]);
    if (scalar) return becomes(graph, node, (*scalar != 0) == is_and ? node->inputs[1 - i] : node->inputs[i]);
  }
  return node->inputs[0] == node->inputs[1] && becomes(graph, node, node->inputs[0]);
}

bool decide_where(Graph& graph, Node* node) {
  std::optional<bool> condition;
  if (const auto stored = scalar_of(node->inputs[0]))
    condition = *stored != 0;
  else if (const auto known = ops::content_of(node->inputs[0]);
           known && known->size() == 1 && (*known)[0].is_constant())
    condition = *(*known)[0].constant() != 0;
  return condition && becomes(graph, node, node->inputs[*condition ? 1 : 2]);
}

bool drop_double_not(Graph& graph, Node* node) {
  Node* inner = made_by(node->inputs[0], "Not");
  return inner && replace(graph, node->outputs[0], inner->inputs[0]);
}

bool simplify_cast(Graph& graph, Node* node) {
  if (node->inputs[0]->dtype() == node->outputs[0]->dtype()) return replace(graph, node->outputs[0], node->inputs[0]);
  return false;
}

bool to_cast(Graph& graph, Node* node) {
  std::vector<Attribute> attributes = node->attributes;
  attributes.push_back(attribute("to", static_cast<int64_t>(node->outputs[0]->dtype())));
  return replace(graph, node->outputs[0],
                 emit(graph, "Cast", {node->inputs[0]}, node, attributes, node->outputs[0]->name));
}

bool drop_identity(Graph& graph, Node* node) {
  if (label_of(*node->outputs[0]) && graph.is_output(node->outputs[0])) return false;  // an annotation needs it
  return replace(graph, node->outputs[0], node->inputs[0]);
}

/// Outside training a Dropout passes its operand on, and its mask is all true.
bool drop_dropout(Graph& graph, Node* node) {
  if (Value* training = node->input(2)) {
    auto known = scalar_of(training);
    if (!known || *known != 0) return false;
  }
  Value* mask = node->output(1);
  if (mask && (!mask->uses.empty() || graph.is_output(mask))) {
    Value* all = expanded(graph, graph.constant_scalar(DType::boolean, 1), mask->shape(), node);
    if (!replace(graph, mask, all)) return false;
  }
  return replace(graph, node->outputs[0], node->inputs[0]);
}

bool fold_constants(Graph& graph, Node* node) {
  if (node->outputs.size() != 1 || graph.is_output(node->outputs[0])) return false;
  Value* constant = fold_short_lists(graph, *node);
  return constant && replace(graph, node->outputs[0], constant);
}

}  // namespace

std::vector<Rule> algebra_rules() {
  return {{"Identity", drop_identity},
          {"Dropout", drop_dropout},
          {"CastLike", to_cast},
          {"Cast", simplify_cast},
          {"Not", drop_double_not},
          {"Where", decide_where},
          {"And", simplify_logic<true>},
          {"Or", simplify_logic<false>},
          {"Add", drop_neutral<Neutral::minus_zero>},
          {"Mul", drop_neutral<Neutral::one>},
          {"Sub", drop_right_neutral<Neutral::zero>},
          {"Div", drop_right_neutral<Neutral::one>},
          {"Pow", drop_right_neutral<Neutral::one>},
          {"", fold_constants}};
}

}  // namespace tessera::rewrite
