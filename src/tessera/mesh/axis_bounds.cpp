#include "tessera/mesh/axis_bounds.h"

namespace tessera {
namespace {

std::optional<int64_t> size_of_index(std::string_view symbol, const Mesh& mesh) {
  if (!symbol.starts_with('@')) return std::nullopt;
  const auto axis = mesh.find(symbol.substr(1));
  return axis ? std::optional(mesh.axes()[static_cast<size_t>(*axis)].size) : std::nullopt;
}

Expr without(const Expr::Atom& atom, const Mesh& mesh) {
  if (atom.kind == Expr::AtomKind::symbol) return Expr::symbol(atom.name);
  const Expr a = without_axis_bounds(atom.arguments[0], mesh), b = without_axis_bounds(atom.arguments[1], mesh);
  switch (atom.kind) {
    case Expr::AtomKind::floordiv:
      return floordiv(a, b);
    case Expr::AtomKind::mod: {
      const auto index = a.as_symbol();
      const auto size = index ? size_of_index(*index, mesh) : std::nullopt;
      return size && b.is(*size) ? a : mod(a, b);
    }
    case Expr::AtomKind::min:
      return min(a, b);
    default:
      return max(a, b);
  }
}

}  // namespace

Expr with_axis_bounds(const Expr& expr, const Mesh& mesh) {
  if (expr.is_constant()) return expr;
  return expr.substitute([&](std::string_view name) -> std::optional<Expr> {
    const auto size = size_of_index(name, mesh);
    return size ? std::optional(mod(Expr::symbol(name), *size)) : std::nullopt;
  });
}

Expr without_axis_bounds(const Expr& expr, const Mesh& mesh) {
  if (expr.is_constant()) return expr;
  Expr sum = 0;
  for (const Expr::Term& term : expr.terms()) {
    Expr product = term.coefficient;
    for (const auto& factor : term.factors) product = product * without(*factor, mesh);
    sum = sum + product;
  }
  return sum;
}

}  // namespace tessera
