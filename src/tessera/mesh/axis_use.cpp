#include "tessera/mesh/axis_use.h"

#include <algorithm>
#include <map>
#include <set>

#include "tessera/ir/always_equal.h"
#include "tessera/mesh/sharding.h"

namespace tessera {
namespace {

// The expression's value on these ranks, if it is the same on all.
Expr where_alike(const Expr& expr, const Mesh& mesh, const std::vector<int>& ranks) {
  const std::vector<size_t> axes = mentioned_axes({expr}, mesh);
  if (axes.empty() || ranks.empty()) return expr;
  std::set<std::vector<int64_t>> seen;
  std::optional<uint64_t> first;
  for (int rank : ranks) {
    const std::vector<int64_t> coordinates = mesh.coordinates(rank);
    std::vector<int64_t> at(coordinates.size());
    for (size_t axis : axes) at[axis] = coordinates[axis];
    if (!seen.insert(at).second) continue;
    const uint64_t here = fingerprint(bind_rank(expr, mesh, at));
    if (!first) first = here;
    if (here != *first || seen.size() > kMostSettings) return expr;
  }
  return bind_rank(expr, mesh, *seen.begin());
}

}  // namespace

std::vector<size_t> mentioned_axes(const std::vector<Expr>& expressions, const Mesh& mesh) {
  std::set<std::string> symbols;
  for (const Expr& expr : expressions) expr.collect_symbols(symbols);
  std::vector<size_t> axes;
  for (size_t axis = 0; axis < mesh.axes().size(); ++axis)
    if (symbols.contains("@" + mesh.axes()[axis].name)) axes.push_back(axis);
  return axes;
}

std::optional<std::vector<std::vector<int64_t>>> settings_of(const std::vector<size_t>& axes, const Mesh& mesh,
                                                             size_t most) {
  std::vector<std::vector<int64_t>> settings = {std::vector<int64_t>(mesh.axes().size(), 0)};
  for (size_t axis : axes) {
    const int64_t size = mesh.axes()[axis].size;
    if (static_cast<size_t>(size) > most / settings.size()) return std::nullopt;
    std::vector<std::vector<int64_t>> longer;
    for (const std::vector<int64_t>& setting : settings)
      for (int64_t index = 0; index < size; ++index) {
        longer.push_back(setting);
        longer.back()[axis] = index;
      }
    settings = std::move(longer);
  }
  return settings;
}

Expr without_idle_axes(const Expr& given, const Mesh& mesh, const std::vector<int>& ranks) {
  if (given.is_constant()) return given;
  const Expr expr = where_alike(given, mesh, ranks);
  std::vector<size_t> axes = mentioned_axes({expr}, mesh);
  const auto settings = axes.empty() ? std::nullopt : settings_of(axes, mesh, kMostSettings);
  if (!settings) return expr;
  std::map<std::vector<int64_t>, uint64_t> on_ranks;
  for (const std::vector<int64_t>& at : *settings) on_ranks.emplace(at, fingerprint(bind_rank(expr, mesh, at)));
  std::erase_if(axes, [&](size_t axis) {
    return std::any_of(on_ranks.begin(), on_ranks.end(), [&](const auto& rank) {
      std::vector<int64_t> first = rank.first;
      first[axis] = 0;
      return on_ranks.at(first) != rank.second;
    });
  });
  return expr.substitute([&](std::string_view name) -> std::optional<Expr> {
    const bool idle = std::any_of(axes.begin(), axes.end(), [&](size_t axis) {
      return name.starts_with('@') && name.substr(1) == mesh.axes()[axis].name;
    });
    return idle ? std::optional<Expr>(0) : std::nullopt;
  });
}

}  // namespace tessera
