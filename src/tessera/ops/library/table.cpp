#include "tessera/ops/library/table.h"

#include <algorithm>
#include <optional>

namespace tessera::ops {
namespace {

// Two neighbouring elements of a table, and what they would be at `steps` after the first if whatever numbers they
// differ in changed by as much with every step. Of 2*q + min(2, r) and 3*q + min(3, r): (2 + steps)*q + min(2 + steps,
// r). Nullopt where they differ in more than numbers.
class Formula {
 public:
  explicit Formula(Expr steps) : steps_(std::move(steps)) {}

  std::optional<Expr> of(const Expr& a, const Expr& b) const {
    if (a == b) return a;
    std::vector<Expr::Term> left = a.terms(), right = b.terms();
    Expr sum = number(take_constant(left), take_constant(right));
    if (left.size() != right.size()) return std::nullopt;
    for (size_t t = 0; t < left.size(); ++t) {
      if (left[t].factors.size() != right[t].factors.size()) return std::nullopt;
      Expr product = number(left[t].coefficient, right[t].coefficient);
      for (size_t f = 0; f < left[t].factors.size(); ++f) {
        const auto factor = of(*left[t].factors[f], *right[t].factors[f]);
        if (!factor) return std::nullopt;
        product = product * *factor;
      }
      sum = sum + product;
    }
    return sum;
  }

 private:
  Expr number(int64_t a, int64_t b) const { return a + (Expr(b) - a) * steps_; }

  static int64_t take_constant(std::vector<Expr::Term>& terms) {
    if (terms.empty() || !terms.back().factors.empty()) return 0;
    const int64_t constant = terms.back().coefficient;
    terms.pop_back();
    return constant;
  }

  std::optional<Expr> of(const Expr::Atom& a, const Expr::Atom& b) const {
    if (a.kind != b.kind) return std::nullopt;
    if (a.kind == Expr::AtomKind::symbol) return a.name == b.name ? std::optional(Expr::symbol(a.name)) : std::nullopt;
    const auto x = of(a.arguments[0], b.arguments[0]), y = of(a.arguments[1], b.arguments[1]);
    if (!x || !y || y->is(0)) return std::nullopt;
    switch (a.kind) {
      case Expr::AtomKind::floordiv:
        return floordiv(*x, *y);
      case Expr::AtomKind::mod:
        return mod(*x, *y);
      case Expr::AtomKind::min:
        return min(*x, *y);
      default:
        return max(*x, *y);
    }
  }

  Expr steps_;
};

// From elements 1 and 2: at 0, terms vanish.
std::optional<Expr> by_formula(const std::vector<Expr>& table, const Expr& index) {
  if (table.size() < 3) return std::nullopt;
  for (size_t k = 0; k < table.size(); ++k)
    if (const auto element = Formula(static_cast<int64_t>(k) - 1).of(table[1], table[2]);
        !element || *element != table[k])
      return std::nullopt;
  return Formula(index - 1).of(table[1], table[2]);
}

}  // namespace

Expr element_at(const std::vector<Expr>& table, const Expr& index) {
  if (auto element = by_formula(table, index)) return *element;
  Expr sum = table[0], slope = 0;
  for (size_t k = 0; k + 1 < table.size(); ++k) {
    const Expr step = table[k + 1] - table[k];
    if (step == slope) continue;
    sum = sum + (step - slope) * max(0, index - static_cast<int64_t>(k));
    slope = step;
  }
  return sum;
}

}  // namespace tessera::ops
