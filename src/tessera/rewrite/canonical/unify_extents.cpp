#include <map>
#include <set>

#include "tessera/ops/library/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

// Two spellings of one extent keep a sharding from passing between the values that have them. If an operator requires
// the two to be equal, one spelling is enough; a run that breaks the equality would fail at that operator anyway.
//
//   positions = table[0 : s]  has extent min(128, s);  words [b, s, h] + positions  →  positions has extent s
namespace tessera::rewrite {
namespace {

/// The symbols in which two sums differ, if they differ in nothing else: past and before in past + s and before + s.
std::optional<std::pair<Expr, Expr>> differing_symbols(const Expr& a, const Expr& b) {
  const std::vector<Expr::Term> terms = (a - b).terms();
  auto is_symbol = [](const Expr::Term& term) {
    return term.factors.size() == 1 && term.factors[0]->kind == Expr::AtomKind::symbol;
  };
  if (terms.size() != 2 || !is_symbol(terms[0]) || !is_symbol(terms[1])) return std::nullopt;
  if (std::abs(terms[0].coefficient) != 1 || terms[0].coefficient + terms[1].coefficient != 0) return std::nullopt;
  return std::pair{Expr::symbol(terms[0].factors[0]->name), Expr::symbol(terms[1].factors[0]->name)};
}

/// The new names of extents: a forest whose roots keep their names.
class Renaming {
 public:
  bool empty() const { return to_.empty(); }

  Expr root(Expr expr) const {
    for (auto next = to_.find(expr); next != to_.end(); next = to_.find(expr)) expr = next->second;
    return expr;
  }

  void join(const Expr& a, const Expr& b) {
    const Expr x = root(a), y = root(b);
    if (x == y) return;
    if (auto symbols = differing_symbols(x, y); symbols && !x.as_symbol()) return join(symbols->first, symbols->second);
    if (auto kept = ops::same_extent(x, y)) to_.emplace(*kept == x ? y : x, *kept);
  }

  /// Replaces whole extents and elements; symbols also inside expressions.
  Expr renamed(const Expr& expr) const {
    return root(expr).substitute([&](std::string_view name) -> std::optional<Expr> {
      const Expr symbol = Expr::symbol(name);
      const Expr other = root(symbol);
      return other == symbol ? std::nullopt : std::optional(other);
    });
  }

 private:
  std::map<Expr, Expr> to_;
};

std::set<std::string> symbols_of(const Expr& expr) {
  std::set<std::string> symbols;
  expr.collect_symbols(symbols);
  return symbols;
}

/// Extents that an operator requires to be equal or, if it `broadcasts`, of which either may be 1. In that case only
/// two expressions over the same symbols, such as min(128, s) and s, are taken to be equal: n and m - 1 may differ if n
/// is 1, and s + 1 and s always do.
void equate(const Expr& a, const Expr& b, bool broadcasts, Renaming& renaming) {
  if (a == b || a.is_constant() || b.is_constant()) return;
  if (!broadcasts || (symbols_of(a) == symbols_of(b) && !(a - b).is_constant())) renaming.join(a, b);
}

void collect(const Node& node, Renaming& renaming) {
  if (is_elementwise(node)) {
    const Shape& result = node.outputs[0]->shape();
    for (const Value* operand : node.inputs) {
      const Shape& shape = operand->shape();
      for (size_t d = 0; d < shape.size(); ++d)
        equate(shape[d], result[result.size() - shape.size() + d], true, renaming);
    }
  }
  if (node.is("MatMul") && node.inputs[0]->rank() >= 1 && node.inputs[1]->rank() >= 2)
    equate(node.inputs[0]->shape().back(), *(node.inputs[1]->shape().end() - 2), false, renaming);
}

}  // namespace

void unify_extents(OnnxModel& model) {
  Graph& graph = *model.graph;
  // Renaming may create further equalities.
  constexpr int kMost = 100;
  for (int round = 0; round < kMost; ++round) {
    Renaming renaming;
    for (const auto& node : graph.nodes()) collect(*node, renaming);
    if (renaming.empty()) return;
    for (const auto& value : graph.values()) {
      if (value->has_data()) continue;
      if (value->type.shape)
        for (Expr& extent : *value->type.shape) extent = renaming.renamed(extent);
      if (value->content)
        for (Expr& element : *value->content) element = renaming.renamed(element);
    }
  }
}

}  // namespace tessera::rewrite
