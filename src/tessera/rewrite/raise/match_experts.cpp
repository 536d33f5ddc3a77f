#include "tessera/rewrite/raise/match_experts.h"

#include <algorithm>

#include "tessera/ops/library/finite.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/raise/match.h"

namespace tessera::rewrite {
namespace {

struct Slice2 {
  int64_t start = 0, step = 1;
};

/// Every second element of the last dimension, from the first or the second on.
std::optional<Slice2> every_second(const Node& node) {
  if (!node.is("Slice")) return std::nullopt;
  const auto one = [&](size_t operand) -> std::optional<int64_t> {
    const auto values = numbers(node.input(operand));
    return values && values->size() == 1 ? std::optional(values->front()) : std::nullopt;
  };
  const auto start = one(1), end = one(2), axis = one(3), step = one(4);
  const auto rank = static_cast<int64_t>(node.inputs[0]->rank());
  const auto extent = node.inputs[0]->shape().back().constant();
  if (!start || !end || !axis || step != 2 || !extent || *extent % 2 != 0 || *end < *extent) return std::nullopt;
  if ((*axis != -1 && *axis + 1 != rank) || *start < 0 || *start > 1) return std::nullopt;
  return Slice2{*start, 2};
}

/// If g and u are parts of one value: that value, and how it holds them.
struct Fused {
  Value* value = nullptr;
  Gated gated = Gated::no;
};
std::optional<Fused> fused(const Value* g, const Value* u) {
  const Node *from = g->producer, *to = u->producer;
  if (!from || !to || from->input(0) != to->input(0)) return std::nullopt;
  const size_t rank = g->rank();
  if (from == to && from->is("Split")) {
    const bool halves = from->outputs.size() == 2 && from->outputs[0] == g && from->outputs[1] == u &&
                        g->shape() == u->shape() && axis_of(*from, "axis", 0, rank) + 1 == static_cast<int64_t>(rank);
    return halves ? std::optional(Fused{from->input(0), Gated::halves}) : std::nullopt;
  }
  const auto first = every_second(*from), second = every_second(*to);
  if (first && second && first->start == 0 && second->start == 1) return Fused{from->input(0), Gated::interleaved};
  if (!from->is("Slice") || !to->is("Slice")) return std::nullopt;
  const auto low = slice_of(*from), high = slice_of(*to);
  const auto extent = from->input(0)->shape().back().constant();
  if (low && high && extent && low->axis + 1 == rank && high->axis + 1 == rank && low->start == 0 &&
      low->end * 2 == *extent && high->start == low->end && high->end == *extent)
    return Fused{from->input(0), Gated::halves};
  return std::nullopt;
}

/// The value before a Clip between these bounds (nullopt: none); itself if there is no Clip.
Value* without_clip(Value* value, std::optional<double>& least, std::optional<double>& most) {
  least = most = std::nullopt;
  Node* clip = made_by(value, "Clip");
  if (!clip) return value;
  const auto bound = [&](size_t operand) -> std::optional<double> {
    return clip->input(operand) ? scalar_of(clip->input(operand)) : std::nullopt;
  };
  if ((clip->input(1) && !bound(1)) || (clip->input(2) && !bound(2))) return value;
  least = bound(1);
  most = bound(2);
  return clip->inputs[0];
}

/// The activation that makes the value, as attributes, and its operand; nullopt for other operators.
std::optional<std::pair<Value*, std::vector<Attribute>>> activation(Value* value) {
  const Node* node = value->producer;
  if (!node || !node->domain.empty()) return std::nullopt;
  const auto named = [&](const char* name) {
    return std::pair(node->inputs[0], std::vector{attribute("activation", std::string(name))});
  };
  if (node->is("Relu")) return named("relu");
  if (node->is("Gelu")) return named(node->get_string("approximate", "none") == "tanh" ? "gelu_tanh" : "gelu");
  if (!node->is("Swish")) return std::nullopt;
  auto swish = named("swish");
  swish.second.push_back(attribute("alpha", node->get_float("alpha", 1)));
  return swish;
}

HiddenUnit unit(Value* gate, Value* up, Gated gated, std::vector<Attribute> attributes) {
  attributes.push_back(attribute("gated", std::string(name_of(gated))));
  return {gate, up, std::move(attributes)};
}

std::optional<HiddenUnit> gated_unit(Value* active, Value* other) {
  auto act = activation(active);
  if (!act) return std::nullopt;
  auto& [g, attributes] = *act;
  std::optional<double> least, most;
  g = without_clip(g, least, most);
  if (least) return std::nullopt;
  const std::optional<double> limit = most;
  double beta = 0;
  if (Node* sum = made_by(other, "Add"))
    for (size_t i : {0, 1})
      if (const auto number = scalar_of(sum->inputs[i]); number && sum->inputs[i]->rank() == 0) {
        beta = *number;
        other = sum->inputs[1 - i];
        break;
      }
  Value* u = without_clip(other, least, most);
  if (limit != most || (most ? least != -*most : least.has_value())) return std::nullopt;
  if (g->shape() != u->shape()) return std::nullopt;
  if (limit) attributes.push_back(attribute("limit", static_cast<float>(*limit)));
  if (beta != 0) attributes.push_back(attribute("beta", static_cast<float>(beta)));
  if (const auto both = fused(g, u)) return unit(both->value, nullptr, both->gated, attributes);
  return unit(g, u, Gated::apart, attributes);
}

bool is_last(int64_t dim, const Value* value) {
  return dim + 1 == static_cast<int64_t>(value->rank());
}

/// Indices from a TopK along the last dimension, and the extent of that dimension; casts and changes of shape may come
/// between.
std::optional<std::pair<Value*, int64_t>> choices_of(Value* value) {
  Value* at = value;
  while (true) {
    at = without_reshapes(at);
    const Node* cast = made_by(at, "Cast");
    if (!cast || !is_integer(at->dtype()) || bits_of(at->dtype()) < 32) break;
    at = cast->inputs[0];
  }
  const Node* top = made_by(at, "TopK");
  if (!top || top->output(1) != at || at->rank() < 2 || !is_last(axis_of(*top, "axis", -1, at->rank()), at))
    return std::nullopt;
  const auto experts = top->inputs[0]->shape().back().constant();
  return experts ? std::optional(std::pair(at, *experts)) : std::nullopt;
}

/// The value in the shape of `like`, if only changes of shape separate it from a value of that shape.
Value* in_shape_of(Value* value, const Value* like) {
  for (Value* at = value;; at = at->producer->inputs[0]) {
    if (at->shape() == like->shape()) return at;
    if (!at->producer || ops::moves_of(*at->producer) != ops::Moves::in_order || at->producer->is("Cast"))
      return nullptr;
  }
}

/// The Equal behind a value that is 1 where the Equal's operands agree, and 0 elsewhere; null if there is none.
Node* equality(Value* value) {
  bool cast = false;
  while (value->producer && (value->producer->is("Cast") || value->producer->is("CastLike"))) {
    value = value->producer->inputs[0];
    cast = true;
  }
  return cast ? made_by(value, "Equal") : nullptr;
}

bool are_in_order(const Value* value, int64_t count) {
  const auto given = numbers(value);
  if (!given || static_cast<int64_t>(given->size()) != count) return false;
  for (int64_t i = 0; i < count; ++i)
    if ((*given)[static_cast<size_t>(i)] != i) return false;
  return true;
}

/// The only dimension that a ReduceSum sums over.
std::optional<int64_t> summed_dim(const Node& node) {
  const auto axes = numbers(node.input(1));
  if (!node.is("ReduceSum") || !axes || axes->size() != 1) return std::nullopt;
  const auto rank = static_cast<int64_t>(node.inputs[0]->rank());
  return axes->front() < 0 ? axes->front() + rank : axes->front();
}

}  // namespace

Value* without_reshapes(Value* value) {
  while (value->producer && !value->producer->is("Cast") && ops::moves_of(*value->producer) == ops::Moves::in_order)
    value = value->producer->inputs[0];
  return value;
}

std::optional<HiddenUnit> hidden_unit(const Graph& graph, Value* hidden) {
  if (graph.is_output(hidden)) return std::nullopt;
  if (Node* product = made_by(hidden, "Mul")) {
    for (size_t i : {0, 1})
      if (auto found = gated_unit(product->inputs[i], product->inputs[1 - i])) return found;
    return std::nullopt;
  }
  auto act = activation(hidden);
  if (!act) return std::nullopt;
  return unit(act->first, nullptr, Gated::no, act->second);
}

std::optional<Routing> routing_of_matrix(Value* matrix) {
  const Node* node = matrix->producer;
  if (!node || matrix->rank() < 2) return std::nullopt;
  if (node->is("ScatterElements")) {
    // TopK's indices differ from each other, so that no place is written twice.
    const std::string reduction = node->get_string("reduction", "none");
    const auto choices = choices_of(node->inputs[1]);
    if (!choices || !ops::are_zeros(node->inputs[0]) || !is_last(axis_of(*node, "axis", 0, matrix->rank()), matrix) ||
        (reduction != "none" && reduction != "add"))
      return std::nullopt;
    if (node->inputs[1]->shape() != choices->first->shape()) return std::nullopt;
    if (matrix->shape().back().constant() != choices->second) return std::nullopt;
    return Routing{choices->first, node->inputs[2], choices->second};
  }
  // Σc [choices = expert] · weights, over [tokens…, choices, experts].
  const auto summed = summed_dim(*node);
  if (!summed || !is_last(*summed, matrix) || node->get_int("keepdims", 1) != 0) return std::nullopt;
  const Node* product = made_by(node->inputs[0], "Mul");
  if (!product) return std::nullopt;
  for (size_t i : {0, 1}) {
    const Node* equal = equality(product->inputs[i]);
    if (!equal) continue;
    for (size_t j : {0, 1}) {
      const auto choices = choices_of(equal->inputs[j]);
      if (!choices || !are_in_order(without_reshapes(equal->inputs[1 - j]), choices->second)) continue;
      Value *chosen = equal->inputs[j], *weights = product->inputs[1 - i];
      Shape column = choices->first->shape();
      column.push_back(1);
      if (chosen->shape() != column || weights->shape() != column ||
          equal->inputs[1 - j]->shape().back().constant() != choices->second ||
          equal->inputs[1 - j]->rank() > column.size())
        continue;
      Value* flat = in_shape_of(weights, choices->first);
      if (flat && matrix->shape().back().constant() == choices->second)
        return Routing{choices->first, flat, choices->second};
    }
  }
  return std::nullopt;
}

std::optional<RoutingColumn> routing_of_column(Value* column) {
  if (column->rank() < 2 || !column->shape().back().is(1)) return std::nullopt;
  const Node* node = column->producer;
  if (!node) return std::nullopt;
  if (node->is("Slice")) {
    const auto range = slice_of(*node);
    const auto routing = routing_of_matrix(node->inputs[0]);
    if (!range || !routing || !is_last(static_cast<int64_t>(range->axis), column) || range->end != range->start + 1)
      return std::nullopt;
    return RoutingColumn{*routing, range->start};
  }
  if (const Node* gather = made_by(without_reshapes(column), "Gather")) {
    Value* matrix = gather->inputs[0];
    int64_t axis = axis_of(*gather, "axis", 0, matrix->rank());
    if (const Node* transpose = made_by(matrix, "Transpose")) {
      // The other dimensions must stay in their order.
      std::vector<int64_t> perm = permutation_of(*transpose);
      matrix = transpose->inputs[0];
      const int64_t from = perm[static_cast<size_t>(axis)];
      perm.erase(perm.begin() + axis);
      if (!std::is_sorted(perm.begin(), perm.end())) return std::nullopt;
      axis = from;
    }
    const auto routing = routing_of_matrix(matrix);
    const auto at = numbers(gather->inputs[1]);
    if (!routing || !at || at->size() != 1 || !is_last(axis, matrix)) return std::nullopt;
    return RoutingColumn{*routing, at->front() < 0 ? at->front() + routing->experts : at->front()};
  }
  node = without_reshapes(column)->producer;
  const auto summed = node ? summed_dim(*node) : std::nullopt;
  const Node* product = summed ? made_by(node->inputs[0], "Mul") : nullptr;
  if (!product || product->outputs[0]->rank() < 2 || !is_last(*summed, product->outputs[0])) return std::nullopt;
  for (size_t i : {0, 1}) {
    const Node* equal = equality(product->inputs[i]);
    if (!equal) continue;
    for (size_t j : {0, 1}) {
      const auto choices = choices_of(equal->inputs[j]);
      const auto expert = numbers(equal->inputs[1 - j]);
      if (!choices || !expert || expert->size() != 1) continue;
      Value* weights = product->inputs[1 - i];
      if (equal->inputs[j]->shape() != choices->first->shape() || weights->shape() != choices->first->shape()) continue;
      return RoutingColumn{{choices->first, weights, choices->second}, expert->front()};
    }
  }
  return std::nullopt;
}

Value* emit_experts(Graph& graph, std::vector<Value*> operands, const std::vector<Attribute>& attributes,
                    const Node* before, std::string_view name) {
  while (!operands.empty() && !operands.back()) operands.pop_back();
  for (size_t i = 0; i < operands.size(); ++i) {
    const Value* operand = operands[i];
    if (!operand || i == ExpertsOperand::choices) continue;
    if (operand->dtype() != operands[ExpertsOperand::tokens]->dtype()) return nullptr;
    if (i >= ExpertsOperand::gate && operand->shape()[0] != operands[ExpertsOperand::gate]->shape()[0]) return nullptr;
  }
  Node* made = graph.add_node("Experts", std::move(operands), {std::string(name)}, kExpertsDomain, before);
  made->attributes = attributes;
  ops::infer_results(ops::op_of(*made), *made);
  return made->outputs[0];
}

}  // namespace tessera::rewrite
