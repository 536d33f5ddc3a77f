#include <algorithm>

#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/match.h"
#include "tessera/rewrite/match_experts.h"
#include "tessera/rewrite/passes.h"

// A mixture of experts in which every expert computes all tokens, as one batch of products, and a matrix of weights
// [tokens, experts], which are zeros but for what TopK chose, says how much of each counts. Example:
//
//   h = act (MatMul (x [1, t, in], w1 [e, in, hidden]));   y = MatMul (h, w2 [e, hidden, out])
//   ReduceSum (y · Reshape (Transpose (weights [t, e])), 0)      or a MatMul that sums over experts
//   → Experts (x, choices, weights of these, w1, w2)
//
// What a token does not choose is not computed then. A result of it that is infinite or NaN would make NaN here even if
// its weight is zero; after raising it does not.
namespace tessera::rewrite {
namespace {

/// Without one exchange of the first two of three dimensions; `is_swapped` says whether there was one.
Value* without_swap(Value* value, bool& is_swapped) {
  is_swapped = false;
  Node* transpose = made_by(value, "Transpose");
  if (!transpose || permutation_of(*transpose) != std::vector<int64_t>{1, 0, 2}) return value;
  is_swapped = true;
  return transpose->inputs[0];
}

/// operand · matrices + bias, for every expert: [experts, tokens, columns].
struct StackedProduct {
  Value *operand = nullptr, *matrices = nullptr, *bias = nullptr;
};

/// A value [experts, 1, columns] as [experts, columns]; nullptr if it is no such row.
Value* as_bias(Graph& graph, Value* value, const Expr& experts, const Expr& columns, const Node* before) {
  if (value->rank() != 3 || value->shape() != Shape{experts, 1, columns}) return nullptr;
  Value* own = without_reshapes(value);
  return own->rank() == 2 && own->shape() == Shape{experts, columns}
             ? own
             : reshaped(graph, value, {experts, columns}, before);
}

std::optional<StackedProduct> stacked_product(Graph& graph, Value* value, const Node* before) {
  StackedProduct found;
  Node* sum = made_by(value, "Add");
  for (size_t i = 0; sum && i < 2; ++i) {
    Node* product = made_by(sum->inputs[i], "MatMul");
    if (!product || product->inputs[1]->rank() != 3) continue;
    const Shape& matrices = product->inputs[1]->shape();
    found.bias = as_bias(graph, sum->inputs[1 - i], matrices[0], matrices[2], before);
    if (!found.bias) return std::nullopt;
    value = sum->inputs[i];
    break;
  }
  const Node* product = made_by(value, "MatMul");
  if (!product || product->inputs[0]->rank() != 3 || product->inputs[1]->rank() != 3) return std::nullopt;
  found.operand = product->inputs[0];
  found.matrices = product->inputs[1];
  return found;
}

/// The tokens [t, in] of which `operand`, [1 or experts, t, in], is repetitions.
Value* same_tokens(Graph& graph, Value* operand, const Node* before) {
  const Shape all = operand->shape();
  const Shape one{all[1], all[2]};
  if (all[0].is(1)) return reshaped(graph, without_reshapes(operand), one, before);
  if (Node* expand = made_by(operand, "Expand")) {
    Value* from = expand->inputs[0];
    const Shape& shape = from->shape();
    if (shape == one) return from;
    return shape == Shape{1, one[0], one[1]} ? reshaped(graph, without_reshapes(from), one, before) : nullptr;
  }
  Value* repeated = without_reshapes(operand);
  const Node* tile = made_by(repeated, "Tile");
  if (!tile || tile->inputs[0]->shape() != one) return nullptr;
  const auto times = contents(tile->inputs[1]);
  return times && times->size() == 2 && (*times)[0] == all[0] && (*times)[1].is(1) ? tile->inputs[0] : nullptr;
}

/// Results of all experts, [experts, tokens, out], and the matrix [tokens, experts] of their weights.
struct WeightedSum {
  Value *results = nullptr, *weights = nullptr;
};

std::optional<WeightedSum> weighted_sum(Node* node) {
  if (node->is("ReduceSum")) {
    const auto axes = numbers(node->input(1));
    const Node* product = made_by(node->inputs[0], "Mul");
    if (!axes || axes->size() != 1 || node->get_int("keepdims", 1) != 0 || !product) return std::nullopt;
    if (product->outputs[0]->rank() != 3) return std::nullopt;
    const int64_t axis = axes->front() < 0 ? axes->front() + 3 : axes->front();
    for (size_t i : {0, 1}) {
      Value *results = product->inputs[i], *weights = product->inputs[1 - i];
      if (weights->rank() != 3 || !weights->shape()[2].is(1) || results->shape() != product->outputs[0]->shape())
        continue;
      bool is_swapped = false;
      results = without_swap(results, is_swapped);
      if (axis != (is_swapped ? 1 : 0)) continue;
      Value* matrix = without_reshapes(weights);
      if (!is_swapped) {
        const Node* transpose = made_by(matrix, "Transpose");
        if (!transpose || permutation_of(*transpose) != std::vector<int64_t>{1, 0}) continue;
        matrix = transpose->inputs[0];
      }
      return WeightedSum{results, matrix};
    }
    return std::nullopt;
  }
  // [t, out, e] · [t, e, 1]
  if (!node->is("MatMul") || node->inputs[0]->rank() != 3 || node->inputs[1]->rank() != 3) return std::nullopt;
  const Node* transpose = made_by(node->inputs[0], "Transpose");
  if (!transpose || permutation_of(*transpose) != std::vector<int64_t>{1, 2, 0}) return std::nullopt;
  if (!node->inputs[1]->shape()[2].is(1)) return std::nullopt;
  return WeightedSum{transpose->inputs[0], without_reshapes(node->inputs[1])};
}

bool raise_stacked(Graph& graph, Node* node) {
  const auto sum = weighted_sum(node);
  if (!sum || sum->results->rank() != 3 || sum->weights->rank() != 2) return false;
  const auto routing = routing_of_matrix(sum->weights);
  if (!routing) return false;
  const auto down = stacked_product(graph, sum->results, node);
  if (!down) return false;
  bool is_swapped = false, gate_is_swapped = false, up_is_swapped = false;
  Value* hidden = without_swap(down->operand, is_swapped);
  auto unit = hidden_unit(graph, hidden);
  if (!unit) return false;
  unit->gate = without_swap(unit->gate, gate_is_swapped);
  if (unit->up) unit->up = without_swap(unit->up, up_is_swapped);
  if (gate_is_swapped != is_swapped || (unit->up && up_is_swapped != is_swapped)) return false;
  const auto gate = stacked_product(graph, unit->gate, node);
  const auto up = unit->up ? stacked_product(graph, unit->up, node) : std::nullopt;
  if (!gate || (unit->up && !up)) return false;
  if (!down->matrices->shape()[0].is(routing->experts) || !gate->matrices->shape()[0].is(routing->experts))
    return false;
  Value* tokens = same_tokens(graph, gate->operand, node);
  if (!tokens || (up && same_tokens(graph, up->operand, node) != tokens)) return false;
  if (tokens->shape()[0] != routing->choices->shape()[0] || sum->results->shape()[1] != tokens->shape()[0])
    return false;
  std::vector<Value*> operands(ExpertsOperand::offset);
  operands[ExpertsOperand::tokens] = tokens;
  operands[ExpertsOperand::choices] = routing->choices;
  operands[ExpertsOperand::weights] = routing->weights;
  operands[ExpertsOperand::gate] = gate->matrices;
  operands[ExpertsOperand::gate_bias] = gate->bias;
  operands[ExpertsOperand::down] = down->matrices;
  operands[ExpertsOperand::down_bias] = down->bias;
  if (up) {
    operands[ExpertsOperand::up] = up->matrices;
    operands[ExpertsOperand::up_bias] = up->bias;
  }
  Value* result = node->outputs[0];
  Value* y = emit_experts(graph, operands, unit->attributes, node, result->name + ".experts");
  return y && replace(graph, result, reshaped(graph, y, result->shape(), node));
}

}  // namespace

void raise_stacked_experts(OnnxModel& model) {
  Graph& graph = *model.graph;
  for (Node* node : nodes_of(graph))
    if (node->is("ReduceSum") || node->is("MatMul")) raise_stacked(graph, node);
  graph.erase_dead();
}

}  // namespace tessera::rewrite
