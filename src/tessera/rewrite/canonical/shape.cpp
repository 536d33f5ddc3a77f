#include <algorithm>
#include <numeric>

#include "tessera/rewrite/canonical/rules.h"
#include "tessera/rewrite/edit.h"

// Turns every change of shape into one Reshape to an explicit shape (allowzero = 1, no -1), or into nothing at all.
namespace tessera::rewrite {
namespace {

bool drop_unchanged(Graph& graph, Node* node) {
  return node->inputs[0]->shape() == node->outputs[0]->shape() && replace(graph, node->outputs[0], node->inputs[0]);
}

bool to_reshape(Graph& graph, Node* node) {
  if (drop_unchanged(graph, node)) return true;
  Value* view = reshaped(graph, node->inputs[0], node->outputs[0]->shape(), node);
  return view != node->inputs[0] && replace(graph, node->outputs[0], view);
}

/// Sets operand 1 to the result's shape if that is known and spelt differently.
bool state_shape(Graph& graph, Node* node) {
  const Shape& shape = node->outputs[0]->shape();
  auto given = contents(node->input(1));
  if (!given || (*given == shape && node->inputs[1]->kind != ValueKind::result)) return false;
  graph.set_input(node, 1, shape_operand(graph, shape));
  return true;
}

bool simplify_reshape(Graph& graph, Node* node) {
  Value* x = node->inputs[0];
  Value* result = node->outputs[0];
  if (drop_unchanged(graph, node)) return true;
  if (Node* inner = made_by(x, "Reshape")) {
    graph.set_input(node, 0, inner->inputs[0]);
    return true;
  }
  auto extents = constants_of(result->shape());
  if (x->kind == ValueKind::constant && extents && !graph.is_output(result)) {
    Tensor data = x->data;
    data.dims = *extents;
    return replace(graph, result, graph.add_constant(x->name, data));
  }
  bool changed = state_shape(graph, node);
  if (node->get_int("allowzero", 0) != 1 && contents(node->input(1))) {
    node->set("allowzero", int64_t{1});
    changed = true;
  }
  return changed;
}

/// Divides dimensions that a Transpose leaves in front before the Transpose, if that undoes an earlier Reshape. PyTorch
/// transposes keys as matrices, with all leading dimensions merged:
///
///     [b, h, s, d] → [b·h, s, d] → Transpose 0 2 1 → [b, h, d, s]   becomes   [b, h, s, d] → Transpose 0 1 3 2
bool divide_before_transpose(Graph& graph, Node* node) {
  Node* transpose = used_once(graph, node->inputs[0]) ? made_by(node->inputs[0], "Transpose") : nullptr;
  if (!transpose || !made_by(transpose->inputs[0], "Reshape")) return false;
  const std::vector<int64_t> permutation = permutation_of(*transpose);
  size_t front = 0;
  while (front < permutation.size() && permutation[front] == static_cast<int64_t>(front)) ++front;
  const size_t moved = permutation.size() - front;
  const Shape &from = node->inputs[0]->shape(), &to = node->outputs[0]->shape();
  if (front == 0 || moved == 0 || to.size() < moved || !std::equal(from.end() - moved, from.end(), to.end() - moved))
    return false;
  Shape shape(to.begin(), to.end() - moved);
  if (!(product(shape) == product(Shape(from.begin(), from.begin() + front)))) return false;
  const int64_t shift = static_cast<int64_t>(shape.size()) - static_cast<int64_t>(front);
  std::vector<int64_t> turn(shape.size());
  std::iota(turn.begin(), turn.end(), 0);
  const Shape& straight = transpose->inputs[0]->shape();
  for (size_t d = front; d < permutation.size(); ++d) {
    shape.push_back(straight[d]);
    turn.push_back(permutation[d] + shift);
  }
  Value* divided = reshaped(graph, transpose->inputs[0], shape, node);
  return replace(graph, node->outputs[0], transposed(graph, divided, turn, node));
}

/// Removes reshapes around Softmax and its kin that undo each other, since along the last dimension these operators do
/// not depend on other dimensions. Before ONNX 13, exporters wrote such reshapes because the operators saw every
/// operand as a matrix.
bool unfold_softmax(Graph& graph, Node* node) {
  Node* softmax = node->inputs[0]->producer;
  if (!softmax || !(softmax->is("Softmax") || softmax->is("LogSoftmax") || softmax->is("Hardmax"))) return false;
  Node* inner = made_by(softmax->inputs[0], "Reshape");
  const Shape& shape = node->outputs[0]->shape();
  if (!inner || !used_once(graph, softmax->outputs[0]) || inner->inputs[0]->shape() != shape) return false;
  const Shape& folded = softmax->inputs[0]->shape();
  if (shape.empty() || folded.empty() || shape.back() != folded.back()) return false;
  if (axis_of(*softmax, "axis", -1, folded.size()) + 1 != static_cast<int64_t>(folded.size())) return false;
  Value* result =
      emit(graph, softmax->op_type, {inner->inputs[0]}, node, {attribute("axis", int64_t{-1})}, node->outputs[0]->name);
  return replace(graph, node->outputs[0], result);
}

bool simplify_transpose(Graph& graph, Node* node) {
  std::vector<int64_t> permutation = permutation_of(*node);
  if (std::is_sorted(permutation.begin(), permutation.end())) return replace(graph, node->outputs[0], node->inputs[0]);
  if (Node* inner = made_by(node->inputs[0], "Transpose")) {
    std::vector<int64_t> before = permutation_of(*inner), both;
    for (int64_t d : permutation) both.push_back(before[d]);
    node->set("perm", both);
    graph.set_input(node, 0, inner->inputs[0]);
    return true;
  }
  if (!node->find_attribute("perm")) {
    node->set("perm", permutation);
    return true;
  }
  // If only extents of 1 change places, the elements stay in place.
  const Shape& shape = node->inputs[0]->shape();
  std::erase_if(permutation, [&](int64_t d) { return shape[d].is(1); });
  return std::is_sorted(permutation.begin(), permutation.end()) && to_reshape(graph, node);
}

bool simplify_expand(Graph& graph, Node* node) {
  if (drop_unchanged(graph, node)) return true;
  if (Node* inner = made_by(node->inputs[0], "Expand")) {
    graph.set_input(node, 0, inner->inputs[0]);
    return true;
  }
  return state_shape(graph, node);
}

bool drop_whole_slice(Graph& graph, Node* node) {
  if (node->input(4)) {
    auto steps = numbers(node->input(4));
    if (!steps || std::any_of(steps->begin(), steps->end(), [](int64_t step) { return step != 1; })) return false;
  }
  return drop_unchanged(graph, node);
}

bool drop_lone_concat(Graph& graph, Node* node) {
  return node->inputs.size() == 1 && replace(graph, node->outputs[0], node->inputs[0]);
}

/// Exporters join rotated and passed elements even if one part is empty.
bool drop_empty_parts(Graph& graph, Node* node) {
  const size_t axis = static_cast<size_t>(axis_of(*node, "axis", 0, node->outputs[0]->rank()));
  std::vector<Value*> parts = node->inputs;
  std::erase_if(parts, [&](const Value* part) { return part->shape()[axis].is(0); });
  if (parts.empty() || parts.size() == node->inputs.size()) return false;
  return replace(graph, node->outputs[0], emit(graph, "Concat", parts, node, node->attributes, node->outputs[0]->name));
}

bool drop_lone_split(Graph& graph, Node* node) {
  return node->outputs.size() == 1 && drop_unchanged(graph, node);
}

/// Element-wise operators broadcast, so an Expand before them moves behind them. It vanishes if another operand makes
/// the result as large anyway.
bool sink_expand(Graph& graph, Node* node) {
  if (!is_elementwise(*node) || node->outputs.size() != 1) return false;
  std::vector<Value*> operands = node->inputs;
  bool expanded_any = false;
  Shape small;
  for (Value*& operand : operands) {
    if (Node* expand = made_by(operand, "Expand")) {
      operand = expand->inputs[0];
      expanded_any = true;
    }
    auto both = broadcast(small, operand->shape());
    if (!both) return false;
    small = *both;
  }
  if (!expanded_any) return false;
  Value* result = node->outputs[0];
  if (small == result->shape()) {
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i] != node->inputs[i]) graph.set_input(node, i, operands[i]);
    return true;
  }
  Value* core = emit(graph, node->op_type, operands, node, node->attributes, result->name);
  return replace(graph, result, expanded(graph, core, result->shape(), node));
}

}  // namespace

std::vector<Rule> shape_rules() {
  return {{"Squeeze", to_reshape},
          {"Unsqueeze", to_reshape},
          {"Flatten", to_reshape},
          {"Reshape", simplify_reshape},
          {"Reshape", unfold_softmax},
          {"Reshape", divide_before_transpose},
          {"Transpose", simplify_transpose},
          {"Expand", simplify_expand},
          {"Slice", drop_whole_slice},
          {"Concat", drop_lone_concat},
          {"Concat", drop_empty_parts},
          {"Split", drop_lone_split},
          {"", sink_expand}};
}

}  // namespace tessera::rewrite
