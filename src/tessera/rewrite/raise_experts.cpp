#include <algorithm>

#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/match.h"
#include "tessera/rewrite/match_experts.h"
#include "tessera/rewrite/passes.h"

// A mixture of experts whose matrices are gathered, once for each choice of each token, becomes Experts, which reads
// each expert's matrices once. Example, tokens x [t, in], of which each makes two choices:
//
//   i = Reshape (choices [t, 2] → [2t, 1]);   rows = Reshape (Expand (x → [t, 2, in]) → [2t, 1, in])
//   h = act (MatMul (rows, GatherND (w1, i)));   y = MatMul (h, GatherND (w2, i)) · Reshape (weights → [2t, 1])
//   ReduceSum (Reshape (y → [t, 2, out]), 1)
//   → Experts (x, choices, weights, w1, w2)
//
// The sum over choices is then in the order of experts, and a weight multiplies hidden elements, not results: the
// roundings differ, the numbers do not.
namespace tessera::rewrite {
namespace {

/// Rows made of gathered matrices: operand · matrices[i] + bias[i].
struct GatheredProduct {
  Value *rows = nullptr, *matrices = nullptr, *bias = nullptr;
  bool turned = false;  ///< the matrices are [experts, columns, rows' elements]
  Value* choices = nullptr;

  Expr in() const { return matrices->shape()[turned ? 2 : 1]; }
  Expr columns() const { return matrices->shape()[turned ? 1 : 2]; }
};

bool ends_with(const Value* value, const Expr& extent) {
  return value->rank() > 0 && value->shape().back() == extent;
}

/// What is gathered along dimension 0 by indices that are the elements of `choices` in their order.
Value* gathered(Value* value, Value*& choices) {
  const Node* node = value->producer;
  if (!node || !(node->is("Gather") || node->is("GatherND"))) return nullptr;
  if (node->is("Gather") && axis_of(*node, "axis", 0, node->inputs[0]->rank()) != 0) return nullptr;
  if (node->is("GatherND") &&
      (node->get_int("batch_dims", 0) != 0 || node->inputs[1]->rank() == 0 || !node->inputs[1]->shape().back().is(1)))
    return nullptr;
  Value* indices = without_reshapes(node->inputs[1]);
  if (choices && choices != indices) return nullptr;
  choices = indices;
  return node->inputs[0];
}

bool is_one(const Value* value, size_t from_end) {
  return value->rank() > from_end && value->shape()[value->rank() - 1 - from_end].is(1);
}

std::optional<GatheredProduct> gathered_product(Value* value, Value* choices) {
  GatheredProduct found;
  found.choices = choices;
  value = without_reshapes(value);
  if (Node* sum = made_by(value, "Add"))
    for (size_t i : {0, 1})
      if (Value* bias = gathered(without_reshapes(sum->inputs[i]), found.choices);
          bias && bias->rank() == 2 && ends_with(sum->inputs[i], bias->shape()[1]) &&
          sum->inputs[i]->shape() == sum->inputs[1 - i]->shape()) {
        found.bias = bias;
        value = without_reshapes(sum->inputs[1 - i]);
        break;
      }
  const Node* product = made_by(value, "MatMul");
  if (!product) return std::nullopt;
  for (const size_t i : {1, 0}) {
    Value* matrices = gathered(without_reshapes(product->inputs[i]), found.choices);
    if (!matrices || matrices->rank() != 3) continue;
    // One row by a matrix, or a matrix by one column.
    if (!is_one(product->inputs[1 - i], i == 1 ? 1 : 0)) continue;
    found.matrices = matrices;
    found.turned = i == 0;
    found.rows = product->inputs[1 - i];
    if (found.bias && found.bias->shape()[1] != found.columns()) return std::nullopt;
    return found;
  }
  return std::nullopt;
}

/// The tokens [t, in] of which `rows` has each once for every choice.
Value* repeated_tokens(Graph& graph, Value* rows, const Value* choices, const Expr& in, const Node* before) {
  rows = without_reshapes(rows);
  const Shape tokens{choices->shape()[0], in};
  if (Node* expand = made_by(rows, "Expand")) {
    const Shape &from = expand->inputs[0]->shape(), to = rows->shape();
    if (from != Shape{tokens[0], 1, in} || to != Shape{tokens[0], choices->shape()[1], in}) return nullptr;
    rows = without_reshapes(expand->inputs[0]);
  } else if (!choices->shape()[1].is(1)) {
    return nullptr;
  }
  return product(rows->shape()) == product(tokens) ? reshaped(graph, rows, tokens, before) : nullptr;
}

bool raise_gathered(Graph& graph, Node* sum) {
  const auto axes = numbers(sum->input(1));
  if (!axes || axes->size() != 1 || sum->get_int("keepdims", 1) != 0) return false;
  Value* parts = sum->inputs[0];
  if (parts->rank() != 3 || (axes->front() != 1 && axes->front() != -2)) return false;
  const Node* weighted = made_by(without_reshapes(parts), "Mul");
  if (!weighted) return false;
  for (size_t i : {0, 1}) {
    const auto down = gathered_product(weighted->inputs[i], nullptr);
    if (!down || down->choices->rank() != 2) continue;
    Value* choices = down->choices;
    const Expr out = down->columns();
    if (!ends_with(weighted->outputs[0], out) || weighted->inputs[i]->shape() != weighted->outputs[0]->shape())
      continue;
    if (parts->shape() != Shape{choices->shape()[0], choices->shape()[1], out}) continue;
    Value* weights = without_reshapes(weighted->inputs[1 - i]);
    if (weights->shape() != choices->shape() || !is_one(weighted->inputs[1 - i], 0)) continue;
    Value* hidden = without_reshapes(down->rows);
    const auto unit = hidden_unit(graph, hidden);
    if (!unit || !ends_with(hidden, down->in())) continue;
    const auto gate = gathered_product(unit->gate, choices);
    const auto up = unit->up ? gathered_product(unit->up, choices) : std::nullopt;
    if (!gate || (unit->up && !up)) continue;
    if (!ends_with(unit->gate, gate->columns()) || (up && !ends_with(unit->up, up->columns()))) continue;
    if (up && without_reshapes(up->rows) != without_reshapes(gate->rows)) continue;
    Value* tokens = repeated_tokens(graph, gate->rows, choices, gate->in(), sum);
    if (!tokens) continue;
    const auto upright = [&](const GatheredProduct& product) {
      return product.turned ? transposed(graph, product.matrices, {0, 2, 1}, sum) : product.matrices;
    };
    std::vector<Value*> operands(ExpertsOperand::offset);
    operands[ExpertsOperand::tokens] = tokens;
    operands[ExpertsOperand::choices] = choices;
    operands[ExpertsOperand::weights] = weights;
    operands[ExpertsOperand::gate] = upright(*gate);
    operands[ExpertsOperand::gate_bias] = gate->bias;
    operands[ExpertsOperand::down] = upright(*down);
    operands[ExpertsOperand::down_bias] = down->bias;
    if (up) {
      operands[ExpertsOperand::up] = upright(*up);
      operands[ExpertsOperand::up_bias] = up->bias;
    }
    Value* y = emit_experts(graph, operands, unit->attributes, sum, sum->outputs[0]->name + ".experts");
    return y && replace(graph, sum->outputs[0], y);
  }
  return false;
}

}  // namespace

void raise_experts(OnnxModel& model) {
  Graph& graph = *model.graph;
  for (Node* node : nodes_of(graph))
    if (node->is("ReduceSum")) raise_gathered(graph, node);
  graph.erase_dead();
}

}  // namespace tessera::rewrite
