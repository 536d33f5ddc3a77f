#include "tessera/ir/solve_extents.h"

namespace tessera {
namespace {

// The one symbol of an extent that is slope * symbol + rest, and its size; nullopt if the extent is none, or if no size
// fits.
std::optional<std::pair<std::string, int64_t>> solve(const Expr& extent, int64_t size) {
  const std::vector<Expr::Term> terms = extent.terms();
  const Expr::Term* open = nullptr;
  int64_t left = size;
  for (const Expr::Term& term : terms) {
    if (term.factors.empty()) {
      if (__builtin_sub_overflow(size, term.coefficient, &left)) return std::nullopt;
      continue;
    }
    if (open || term.factors.size() != 1 || term.factors[0]->kind != Expr::AtomKind::symbol) return std::nullopt;
    open = &term;
  }
  if (!open || left % open->coefficient != 0 || left / open->coefficient < 0) return std::nullopt;
  return std::pair(open->factors[0]->name, left / open->coefficient);
}

}  // namespace

std::map<std::string, SolvedSize, std::less<>> solve_extents(const std::vector<KnownExtent>& extents) {
  std::map<std::string, SolvedSize, std::less<>> solved;
  const auto known = [&](std::string_view symbol) -> std::optional<Expr> {
    const auto found = solved.find(symbol);
    return found == solved.end() ? std::nullopt : std::optional<Expr>(found->second.size);
  };
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < extents.size(); ++i)
      if (const auto found = solve(extents[i].extent.substitute(known), extents[i].size)) {
        solved.emplace(found->first, SolvedSize{found->second, i});
        more = true;
      }
  }
  return solved;
}

}  // namespace tessera
