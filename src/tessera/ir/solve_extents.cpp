#include "tessera/ir/solve_extents.h"

#include "tessera/base/error.h"

namespace tessera {
namespace {

// slope * symbol + rest
struct Linear {
  std::string symbol;
  int64_t slope = 1, rest = 0;
};

std::optional<Linear> linear(const Expr& extent) {
  std::optional<Linear> found;
  int64_t rest = 0;
  for (const Expr::Term& term : extent.terms()) {
    if (term.factors.empty()) {
      rest = term.coefficient;
      continue;
    }
    if (found || term.factors.size() != 1 || term.factors[0]->kind != Expr::AtomKind::symbol) return std::nullopt;
    found = Linear{term.factors[0]->name, term.coefficient};
  }
  if (found) found->rest = rest;
  return found;
}

// The size of the symbol where the extent has that size; nullopt: none fits.
std::optional<int64_t> solve(const Linear& extent, int64_t size) {
  int64_t left = 0;
  if (__builtin_sub_overflow(size, extent.rest, &left) || left % extent.slope != 0) return std::nullopt;
  const int64_t found = left / extent.slope;
  return found < 0 ? std::nullopt : std::optional(found);
}

}  // namespace

SolvedSizes solve_extents(const std::vector<KnownExtent>& extents) {
  SolvedSizes solved;
  std::vector<size_t> open;  // expressions, which other extents may have to say more of
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i].extent.is_constant()) continue;
    if (const auto symbol = extents[i].extent.as_symbol())
      solved.try_emplace(*symbol, SolvedSize{extents[i].size, i});
    else
      open.push_back(i);
  }
  for (bool more = true; more && !open.empty();) {
    more = false;
    std::erase_if(open, [&](size_t i) {
      const auto left = with_known(extents[i].extent, solved);
      if (!left || left->is_constant()) return true;
      const auto equation = linear(*left);
      if (!equation) return false;
      if (const auto size = solve(*equation, extents[i].size))
        more |= solved.try_emplace(equation->symbol, SolvedSize{*size, i}).second;
      return true;
    });
  }
  return solved;
}

std::optional<Expr> with_known(const Expr& extent, const SolvedSizes& sizes) {
  try {
    return extent.substitute([&](std::string_view symbol) -> std::optional<Expr> {
      const auto found = sizes.find(symbol);
      return found == sizes.end() ? std::nullopt : std::optional<Expr>(found->second.size);
    });
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    return std::nullopt;
  }
}

bool says_a_size(const Expr& extent) {
  return linear(extent).has_value();
}

}  // namespace tessera
