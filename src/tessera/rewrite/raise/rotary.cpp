#include <set>

#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/raise/match.h"

// Let x = [x1, x2] of shape [batch, heads, sequence, width], and cos, sin of shape [batch or 1, 1, sequence, width]
// whose two halves along the width are equal. Then
//   x·cos + [-x2, x1]·sin   becomes   RotaryEmbedding(x, half of cos, half of sin)
// with caches of shape [batch or 1, sequence, width/2]. If cos and sin have only half the width, so does
//   [x1·cos - x2·sin, x2·cos + x1·sin]
namespace tessera::rewrite {
namespace {

/// Whether value is the first (0) or second (1) half of x along its last dimension; -1 if neither.
int half_index(const Value* value, const Value* x) {
  Node* node = value->producer;
  auto width = x->shape().back().constant();
  if (!node || node->input(0) != x || !width || *width % 2 != 0 || !value->shape().back().is(*width / 2)) return -1;
  if (node->is("Split")) {
    bool last = static_cast<size_t>(axis_of(*node, "axis", 0, x->rank())) == x->rank() - 1;
    return last && node->outputs.size() == 2 ? (node->outputs[1] == value) : -1;
  }
  auto slice = slice_of(*node);
  if (!slice || slice->axis != x->rank() - 1) return -1;
  return slice->start == 0 ? 0 : slice->end == *width ? 1 : -1;
}

/// Whether value = [-x2, x1].
bool is_rotated(const Graph& graph, const Value* value, const Value* x) {
  Node* concat = used_once(graph, value) ? made_by(value, "Concat") : nullptr;
  if (!concat || concat->inputs.size() != 2 ||
      static_cast<size_t>(axis_of(*concat, "axis", 0, x->rank())) != x->rank() - 1)
    return false;
  Node* negated = made_by(concat->inputs[0], "Neg");
  return negated && half_index(negated->inputs[0], x) == 1 && half_index(concat->inputs[1], x) == 0;
}

bool is_pointwise(const Node& node) {
  static const std::set<std::string_view> types = {"Cos", "Sin", "Cast", "Neg"};
  return types.contains(node.op_type);
}

/// The first half, along the last dimension, of a value with two equal halves by construction; null for other values.
/// Makes nodes only if `build`.
Value* first_half(Graph& graph, Value* value, const Node* before, bool build) {
  Node* node = value->producer;
  if (!node || value->rank() == 0) return nullptr;
  if (node->is("Concat")) {
    bool twice = node->inputs.size() == 2 && node->inputs[0] == node->inputs[1] &&
                 static_cast<size_t>(axis_of(*node, "axis", 0, value->rank())) == value->rank() - 1;
    return twice ? node->inputs[0] : nullptr;
  }
  if (is_pointwise(*node)) {
    Value* half = first_half(graph, node->inputs[0], before, build);
    return half && build ? emit(graph, node->op_type, {half}, before, node->attributes, value->name) : half;
  }
  if (node->is("Mul")) {
    for (size_t i : {0, 1}) {
      if (!scalar_of(node->inputs[i])) continue;
      Value* half = first_half(graph, node->inputs[1 - i], before, build);
      return half && build ? emit(graph, "Mul", {half, node->inputs[i]}, before, {}, value->name) : half;
    }
    return nullptr;
  }
  if (node->is("Reshape")) {
    Value* whole = node->inputs[0];
    if (whole->rank() == 0 || !(whole->shape().back() == value->shape().back())) return nullptr;
    Value* half = first_half(graph, whole, before, build);
    if (!half || !build) return half;
    Shape shape = value->shape();
    shape.back() = half->shape().back();
    return reshaped(graph, half, shape, before);
  }
  return nullptr;
}

/// Whether the table has dimensions that RotaryEmbedding supports: [batch or 1, 1, sequence, width], with the width of
/// x or 1/`share` of it.
bool is_table(const Value* table, const Value* x, int64_t share = 1) {
  const Shape& shape = table->shape();
  return shape.size() == 4 && (shape[0].is(1) || shape[0] == x->shape()[0]) && shape[1].is(1) &&
         shape[2] == x->shape()[2] && shape[3] * share == x->shape()[3];
}

/// RotaryEmbedding's operand for a table of half the width.
Value* cache_of(Graph& graph, Value* half, const Node* before) {
  const Shape shape = half->shape();
  return reshaped(graph, half, {shape[0], shape[2], shape[3]}, before);
}

Value* cache(Graph& graph, Value* table, const Node* before) {
  return cache_of(graph, first_half(graph, table, before, true), before);
}

/// A product of half `index` of x with a table.
struct HalfProduct {
  Value *x = nullptr, *table = nullptr;
  int index = -1;
};

/// The two half products whose sum or difference is `value`; empty for other values.
std::vector<HalfProduct> half_products(const Graph& graph, Value* value, std::string_view op_type) {
  const Node* node = used_once(graph, value) ? made_by(value, op_type) : nullptr;
  std::vector<HalfProduct> found;
  for (size_t term = 0; node && term < 2; ++term) {
    const Node* product = used_once(graph, node->inputs[term]) ? made_by(node->inputs[term], "Mul") : nullptr;
    for (size_t i = 0; product && i < 2; ++i) {
      const Node* halves = product->inputs[i]->producer;
      Value* x = halves ? halves->input(0) : nullptr;
      if (!x || x->rank() != 4 || found.size() > term) continue;
      if (const int index = half_index(product->inputs[i], x); index >= 0)
        found.push_back({x, product->inputs[1 - i], index});
    }
  }
  return found.size() == 2 ? found : std::vector<HalfProduct>();
}

bool raise_halves(Graph& graph, Node* concat) {
  if (concat->inputs.size() != 2 || concat->outputs[0]->rank() != 4 ||
      static_cast<size_t>(axis_of(*concat, "axis", 0, 4)) != 3)
    return false;
  const auto first = half_products(graph, concat->inputs[0], "Sub");
  auto second = half_products(graph, concat->inputs[1], "Add");
  if (first.empty() || second.empty()) return false;
  if (second[0].index == 0) std::swap(second[0], second[1]);
  Value *x = first[0].x, *cos = first[0].table, *sin = first[1].table;
  const auto is_product = [&](const HalfProduct& product, int index, const Value* table) {
    return product.x == x && product.index == index && product.table == table;
  };
  if (!is_product(first[0], 0, cos) || !is_product(first[1], 1, sin) || !is_product(second[0], 1, cos) ||
      !is_product(second[1], 0, sin) || !is_table(cos, x, 2) || !is_table(sin, x, 2) ||
      !(cos->shape()[0] == sin->shape()[0]))
    return false;
  Value* rotary = emit(graph, "RotaryEmbedding", {x, cache_of(graph, cos, concat), cache_of(graph, sin, concat)},
                       concat, {attribute("interleaved", int64_t{0})}, concat->outputs[0]->name);
  return replace(graph, concat->outputs[0], rotary);
}

bool raise(Graph& graph, Node* add) {
  for (size_t side : {0, 1}) {
    Value* straight = add->inputs[side];
    Value* turned = add->inputs[1 - side];
    if (!used_once(graph, straight) || !used_once(graph, turned)) return false;
    Node* by_cos = made_by(straight, "Mul");
    Node* by_sin = made_by(turned, "Mul");
    if (!by_cos || !by_sin) return false;
    for (size_t i : {0, 1})
      for (size_t j : {0, 1}) {
        Value* x = by_cos->inputs[i];
        Value* cos = by_cos->inputs[1 - i];
        Value* sin = by_sin->inputs[1 - j];
        if (x->rank() != 4 || !is_rotated(graph, by_sin->inputs[j], x) || !is_table(cos, x) || !is_table(sin, x) ||
            !(cos->shape()[0] == sin->shape()[0]) || !first_half(graph, cos, add, false) ||
            !first_half(graph, sin, add, false))
          continue;
        Value* rotary = emit(graph, "RotaryEmbedding", {x, cache(graph, cos, add), cache(graph, sin, add)}, add,
                             {attribute("interleaved", int64_t{0})}, add->outputs[0]->name);
        return replace(graph, add->outputs[0], rotary);
      }
  }
  return false;
}

}  // namespace

void raise_rotary(OnnxModel& model) {
  Graph& graph = *model.graph;
  for (Node* node : nodes_of(graph))
    if (node->is("Add"))
      raise(graph, node);
    else if (node->is("Concat"))
      raise_halves(graph, node);
  graph.erase_dead();
}

}  // namespace tessera::rewrite
