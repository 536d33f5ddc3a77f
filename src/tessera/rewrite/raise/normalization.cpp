#include <algorithm>

#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/raise/match.h"

//   c = x - mean(x);  y = c / sqrt(mean(c²) + ε) · w + b     LayerNormalization
//               y = x / sqrt(mean(x²) + ε) · w               RMSNormalization
// stash_type = 1 means a Cast to float32 before, and a Cast back after the division.
namespace tessera::rewrite {
namespace {

/// v such that value = v^(-1/2), or null.
Value* under_inverse_root(const Graph& graph, const Value* value) {
  if (!used_once(graph, value)) return nullptr;
  if (Node* power = made_by(value, "Pow")) return is_scalar(power->inputs[1], -0.5) ? power->inputs[0] : nullptr;
  Node* reciprocal = made_by(value, "Reciprocal");
  Node* one_over = made_by(value, "Div");
  Value* root = reciprocal                                      ? reciprocal->inputs[0]
                : one_over && is_scalar(one_over->inputs[0], 1) ? one_over->inputs[1]
                                                                : nullptr;
  Node* sqrt = root && used_once(graph, root) ? made_by(root, "Sqrt") : nullptr;
  return sqrt ? sqrt->inputs[0] : nullptr;
}

struct Normalized {
  Value* x = nullptr;       ///< the normalized operand
  Value* result = nullptr;  ///< before weight and bias
  bool centered = false;    ///< the mean is subtracted
  int64_t dims = 0;         ///< trailing dimensions that are normalized over
  float epsilon = 0;
};

/// The number of trailing dimensions that a ReduceMean (keepdims) reduces; 0 if it reduces others.
int64_t trailing_dims(const Node* mean) {
  if (!mean || mean->get_int("keepdims", 1) != 1) return 0;
  auto axes = numbers(mean->input(1));
  if (!axes || axes->empty()) return 0;
  int64_t rank = static_cast<int64_t>(mean->inputs[0]->rank());
  for (int64_t& axis : *axes) axis += axis < 0 ? rank : 0;
  std::sort(axes->begin(), axes->end());
  int64_t count = static_cast<int64_t>(axes->size());
  for (int64_t i = 0; i < count; ++i)
    if ((*axes)[i] != rank - count + i) return 0;
  return count;
}

/// Matches `node` = c / sqrt(mean(c²) + ε).
std::optional<Normalized> match(const Graph& graph, Node* node) {
  Value* centered = nullptr;
  Value* variance = nullptr;
  if (node->is("Div")) {
    Node* sqrt = used_once(graph, node->inputs[1]) ? made_by(node->inputs[1], "Sqrt") : nullptr;
    centered = node->inputs[0];
    variance = sqrt ? sqrt->inputs[0] : nullptr;
  } else if (node->is("Mul")) {
    for (size_t i : {0, 1})
      if (Value* found = under_inverse_root(graph, node->inputs[i])) {
        centered = node->inputs[1 - i];
        variance = found;
      }
  }
  Node* shifted = variance && used_once(graph, variance) ? made_by(variance, "Add") : nullptr;
  if (!shifted) return std::nullopt;
  for (size_t i : {0, 1}) {
    auto epsilon = scalar_of(shifted->inputs[i]);
    Value* average = shifted->inputs[1 - i];
    Node* mean = epsilon && used_once(graph, average) ? made_by(average, "ReduceMean") : nullptr;
    int64_t dims = trailing_dims(mean);
    if (dims == 0 || !used_once(graph, mean->inputs[0])) continue;
    Node* square = mean->inputs[0]->producer;
    if (!square || !(square->is("Mul") || square->is("Pow")) || square->inputs[0] != centered) continue;
    if (square->is("Mul") ? square->inputs[1] != centered : !is_scalar(square->inputs[1], 2)) continue;
    Normalized found{centered, node->outputs[0], false, dims, static_cast<float>(*epsilon)};
    if (Node* difference = made_by(centered, "Sub")) {
      Node* center = made_by(difference->inputs[1], "ReduceMean");
      if (center && center->inputs[0] == difference->inputs[0] && trailing_dims(center) == dims &&
          used_once(graph, difference->inputs[1]) && used_only_by(graph, centered, {square, node})) {
        found.x = difference->inputs[0];
        found.centered = true;
      }
    }
    return found;
  }
  return std::nullopt;
}

/// A Cast to float32 of the operand, undone on the result, belongs to the normalization.
void absorb_casts(const Graph& graph, Normalized& found) {
  Node* widened = made_by(found.x, "Cast");
  Node* narrowed = only_user(graph, found.result);
  if (!widened || !narrowed || !narrowed->is("Cast") || found.x->dtype() != DType::float32) return;
  if (narrowed->outputs[0]->dtype() != widened->inputs[0]->dtype() || !is_float(narrowed->outputs[0]->dtype())) return;
  found.x = widened->inputs[0];
  found.result = narrowed->outputs[0];
}

/// The other operand of result's only use, if that use is a `type` and the operand has the shape of the normalized
/// dimensions; then result becomes the use's result.
Value* take_parameter(const Graph& graph, std::string_view type, const Shape& shape, Value*& result) {
  Node* user = only_user(graph, result);
  if (!user || !user->is(type)) return nullptr;
  Value* other = user->inputs[user->inputs[0] == result ? 1 : 0];
  if (other == result || other->shape() != shape || other->dtype() != result->dtype()) return nullptr;
  result = user->outputs[0];
  return other;
}

Value* ones(Graph& graph, DType dtype, const Shape& shape, const Node* before) {
  if (!is_float(dtype) || bits_of(dtype) < 16) return nullptr;
  return expanded(graph, graph.constant_scalar(dtype, 1), shape, before);
}

}  // namespace

void raise_normalization(OnnxModel& model) {
  Graph& graph = *model.graph;
  for (Node* node : nodes_of(graph)) {
    auto found = match(graph, node);
    if (!found) continue;
    if (found->x->rank() != found->result->rank()) continue;  // a constant's dimensions widened it
    absorb_casts(graph, *found);
    Shape shape(found->x->shape().end() - found->dims, found->x->shape().end());
    Value* weight = take_parameter(graph, "Mul", shape, found->result);
    Value* bias = weight && found->centered ? take_parameter(graph, "Add", shape, found->result) : nullptr;
    Node* before = found->result->producer;
    if (!weight) weight = ones(graph, found->x->dtype(), shape, before);
    if (!weight) continue;
    std::vector<Value*> operands = {found->x, weight};
    if (bias) operands.push_back(bias);
    Value* raised = emit(
        graph, found->centered ? "LayerNormalization" : "RMSNormalization", operands, before,
        {attribute("axis", -found->dims), attribute("epsilon", found->epsilon), attribute("stash_type", int64_t{1})},
        found->result->name);
    replace(graph, found->result, raised);
  }
  graph.erase_dead();
}

}  // namespace tessera::rewrite
