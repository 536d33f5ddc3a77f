#include <map>

#include "tessera/ops/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

// Two spellings of one extent keep a sharding from travelling between the values that have them. Where an operator
// requires them to be equal, one is enough; a run that breaks the equality would fail at that operator anyway.
//
//   positions = table[0 : s]  has extent min(128, s);  words [b, s, h] + positions  →  positions has extent s
namespace tessera::rewrite {
namespace {

using Renaming = std::map<Expr, Expr>;

/// Records that `a` and `b` are equal, if one is a compound expression (min, floordiv, …) or both are symbols and
/// `symbols` may be unified: what merely broadcasts may be 1.
void equate(const Expr& a, const Expr& b, bool symbols, Renaming& renaming) {
  if (a == b || a.is_constant() || b.is_constant()) return;
  auto kept = ops::same_extent(a, b);
  if (!kept || (!symbols && a.as_symbol() && b.as_symbol())) return;
  renaming.emplace(*kept == a ? b : a, *kept);
}

void collect(const Node& node, Renaming& renaming) {
  if (is_elementwise(node)) {
    const Shape& result = node.outputs[0]->shape();
    for (const Value* operand : node.inputs) {
      const Shape& shape = operand->shape();
      for (size_t d = 0; d < shape.size(); ++d)
        equate(shape[d], result[result.size() - shape.size() + d], false, renaming);
    }
  }
  if (node.is("MatMul") && node.inputs[0]->rank() >= 1 && node.inputs[1]->rank() >= 2)
    equate(node.inputs[0]->shape().back(), *(node.inputs[1]->shape().end() - 2), true, renaming);
}

/// Whole extents and elements are replaced; a symbol also inside of expressions.
Expr renamed(const Expr& expr, const Expr& from, const Expr& to) {
  if (expr == from) return to;
  auto symbol = from.as_symbol();
  if (!symbol) return expr;
  return expr.substitute(
      [&](std::string_view name) { return name == *symbol ? std::optional<Expr>(to) : std::nullopt; });
}

}  // namespace

void unify_extents(OnnxModel& model) {
  Graph& graph = *model.graph;
  // One equality at a time: each may make others hold, or change what they say.
  constexpr int kMost = 1000;
  for (int round = 0; round < kMost; ++round) {
    Renaming renaming;
    for (const auto& node : graph.nodes())
      if (renaming.empty()) collect(*node, renaming);
    if (renaming.empty()) return;
    const auto& [from, to] = *renaming.begin();
    for (const auto& value : graph.values()) {
      if (value->has_data()) continue;
      if (value->type.shape)
        for (Expr& extent : *value->type.shape) extent = renamed(extent, from, to);
      if (value->content)
        for (Expr& element : *value->content) element = renamed(element, from, to);
    }
  }
}

}  // namespace tessera::rewrite
