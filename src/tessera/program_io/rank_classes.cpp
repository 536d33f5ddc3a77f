#include "tessera/program_io/rank_classes.h"

#include <algorithm>
#include <map>
#include <set>

#include "tessera/mesh/axis_use.h"
#include "tessera/spmd/partition/specialize.h"

namespace tessera::program_io {
namespace {

std::set<std::string> symbols_of(const Expr& expr) {
  std::set<std::string> symbols;
  expr.collect_symbols(symbols);
  return symbols;
}

// How an expression distinguishes ranks: an outcome for each setting of the coordinates along some axes.
struct Split {
  std::vector<size_t> axes;
  std::vector<int> outcome;  // row-major over `axes`
  auto operator<=>(const Split&) const = default;
};

Split split_by(const Expr& expr, const Mesh& mesh) {
  Split split{mentioned_axes({expr}, mesh), {}};
  const auto settings = settings_of(split.axes, mesh, static_cast<size_t>(mesh.size()));
  std::map<Expr, int> known;
  for (const std::vector<int64_t>& at : settings.value())
    split.outcome.push_back(known.emplace(bind_rank(expr, mesh, at), static_cast<int>(known.size())).first->second);
  return split;
}

// All expressions in a rank's model: extents, and elements of shape operands.
std::set<Expr> expressions_of(const Graph& graph) {
  std::set<Expr> all;
  for (const auto& value : graph.values()) {
    if (value->has_shape()) all.insert(value->shape().begin(), value->shape().end());
    if (value->content) all.insert(value->content->begin(), value->content->end());
  }
  return all;
}

}  // namespace

RankClasses classes_by(const Mesh& mesh, const std::vector<Expr>& expressions) {
  std::set<Split> splits;
  for (const Expr& expr : std::set<Expr>(expressions.begin(), expressions.end())) {
    Split split = split_by(expr, mesh);
    if (split.outcome.size() > 1) splits.insert(std::move(split));
  }
  RankClasses classes;
  std::map<std::vector<int>, int> known;
  for (int64_t rank = 0; rank < mesh.size(); ++rank) {
    auto coordinates = mesh.coordinates(rank);
    std::vector<int> outcomes;
    for (const Split& split : splits) {
      int64_t index = 0;
      for (size_t axis : split.axes) index = index * mesh.axes()[axis].size + coordinates[axis];
      outcomes.push_back(split.outcome[index]);
    }
    auto [found, fresh] = known.emplace(std::move(outcomes), static_cast<int>(classes.count()));
    if (fresh) classes.first_rank.push_back(static_cast<int>(rank));
    classes.of_rank.push_back(found->second);
  }
  return classes;
}

std::vector<std::string> unbound_axes(const spmd::Program& program) {
  std::set<std::string> needed;  // "@tp"
  for (const Expr& expr : expressions_of(*program.graph)) {
    auto symbols = symbols_of(expr);
    bool symbolic =
        std::any_of(symbols.begin(), symbols.end(), [](const std::string& name) { return !name.starts_with('@'); });
    if (!symbolic) needed.insert(symbols.begin(), symbols.end());
  }
  for (const AxisRef& axis : spmd::placed_axes(program)) needed.insert("@" + axis.axis);
  std::vector<std::string> unbound;
  for (const MeshAxis& axis : program.mesh.axes())
    if (!needed.contains("@" + axis.name)) unbound.push_back(axis.name);
  return unbound;
}

RankClasses model_classes(const spmd::Program& program, const std::vector<std::string>& unbound) {
  std::vector<Expr> bound;
  auto hide = [&](std::string_view name) -> std::optional<Expr> {
    bool open = name.starts_with('@') && std::find(unbound.begin(), unbound.end(), name.substr(1)) != unbound.end();
    // A name that is not an axis index: the expression keeps its form and does not distinguish ranks.
    return open ? std::optional(Expr::symbol("index of " + std::string(name.substr(1)))) : std::nullopt;
  };
  for (const Expr& expr : expressions_of(*program.graph)) bound.push_back(expr.substitute(hide));
  for (const AxisRef& axis : spmd::placed_axes(program)) bound.push_back(index_along(axis, program.mesh));
  return classes_by(program.mesh, bound);
}

RankClasses shard_classes(const spmd::Program& program) {
  std::vector<Expr> expressions;
  for (const auto& [state, data] : program.initial) {
    const Sharding& sharding = program.placement(state).sharding;
    for (const PlacedAxis& place : sharding.at) expressions.push_back(index_along(place.axis, program.mesh));
    for (const DimSharding& dim : sharding.dims)
      for (const Part& part : dim.parts) {
        expressions.push_back(local_offset(part, program.mesh));
        expressions.push_back(local_extent(part, program.mesh));
      }
  }
  return classes_by(program.mesh, expressions);
}

}  // namespace tessera::program_io
