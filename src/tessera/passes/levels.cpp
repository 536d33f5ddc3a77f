#include "tessera/passes/levels.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::passes {
namespace {

using spmd::ReshardKind;
using spmd::ReshardStep;

// Builds steps one after the other; each begins where the last one ended.
class Steps {
 public:
  explicit Steps(Sharding now) : now_(std::move(now)) {}

  template <typename Change>
  void add(ReshardStep step, Change change) {
    step.before = now_;
    change(now_);
    step.after = now_;
    steps_.push_back(std::move(step));
  }

  void reduce_scatter(const std::vector<AxisRef>& axes, Reduction reduction, int dim, int part) {
    add({ReshardKind::reduce_scatter, axes, reduction, dim, part}, [&](Sharding& now) {
      drop_partial(now, axes);
      auto& split = now.dims[dim].parts[part].axes;
      split.insert(split.end(), axes.begin(), axes.end());
    });
  }
  void all_reduce(const std::vector<AxisRef>& axes, Reduction reduction) {
    add({ReshardKind::all_reduce, axes, reduction}, [&](Sharding& now) { drop_partial(now, axes); });
  }
  void all_gather(const std::vector<AxisRef>& axes, int dim, int part) {
    add({ReshardKind::all_gather, axes, Reduction::sum, dim, part}, [&](Sharding& now) {
      auto& split = now.dims[dim].parts[part].axes;
      split.resize(split.size() - axes.size());
    });
  }

  std::vector<ReshardStep> take() { return std::move(steps_); }

 private:
  static void drop_partial(Sharding& now, const std::vector<AxisRef>& axes) {
    std::erase_if(now.partial, [&](const PartialAxis& partial) {
      return std::find(axes.begin(), axes.end(), partial.axis) != axes.end();
    });
  }

  Sharding now_;
  std::vector<ReshardStep> steps_;
};

// The sharding with partial sums over a step's axes as partial sums over its levels' axes.
Sharding partial_by_levels(const ReshardStep& step, const std::vector<cost::GroupLevel>& levels) {
  Sharding sharding = step.before;
  std::erase_if(sharding.partial, [&](const PartialAxis& partial) {
    return std::any_of(step.axes.begin(), step.axes.end(),
                       [&](const AxisRef& axis) { return axis.overlaps(partial.axis); });
  });
  for (auto level = levels.rbegin(); level != levels.rend(); ++level)
    for (const AxisRef& axis : level->axes) sharding.partial.push_back({axis, step.reduction});
  return sharding;
}

std::optional<LevelSteps> all_reduce(const ReshardStep& step, const std::vector<cost::GroupLevel>& levels,
                                     const Mesh& mesh, const std::map<std::string, int64_t, std::less<>>& hints) {
  int dim = -1, part = -1;
  double least = std::numeric_limits<double>::max();
  for (size_t d = 0; d < step.before.dims.size(); ++d)
    for (size_t p = 0; p < step.before.dims[d].parts.size(); ++p) {
      const double extent = std::max(1.0, spmd::hinted(local_extent(step.before.dims[d].parts[p], mesh), hints));
      double largest = extent, ranks = 1;
      for (size_t l = 0; l + 1 < levels.size(); ++l)
        for (const AxisRef& axis : levels[l].axes) {
          largest = std::ceil(largest / static_cast<double>(axis.size));
          ranks *= static_cast<double>(axis.size);
        }
      const double imbalance = largest * ranks / extent;
      if (imbalance >= least) continue;
      least = imbalance;
      dim = static_cast<int>(d);
      part = static_cast<int>(p);
    }
  if (dim < 0) return std::nullopt;
  Steps steps(partial_by_levels(step, levels));
  for (size_t l = 0; l + 1 < levels.size(); ++l) steps.reduce_scatter(levels[l].axes, step.reduction, dim, part);
  steps.all_reduce(levels.back().axes, step.reduction);
  for (size_t l = levels.size() - 1; l-- > 0;) steps.all_gather(levels[l].axes, dim, part);
  return LevelSteps{steps.take(), least};
}

// A part that is split over `major`, then over the levels' axes, as one part per level, major first; has the levels'
// axes only if `split`. Requires equal shards: otherwise the larger shards are in the first units instead of first in
// each level.
std::optional<DimSharding> part_by_levels(const DimSharding& dim, int part, const std::vector<AxisRef>& major,
                                          const std::vector<cost::GroupLevel>& levels, bool split) {
  int64_t units = 1;  // of all but the nearest level
  for (const AxisRef& axis : major) units *= axis.size;
  const int64_t outermost = units * levels.back().cost.size;
  for (size_t l = 1; l < levels.size(); ++l) units *= levels[l].cost.size;
  auto rest = Expr::exact_divide(dim.parts[part].size, units);
  if (!rest || !Expr::exact_divide(*rest, levels.front().cost.size)) return std::nullopt;
  std::vector<Part> parts;
  for (size_t l = levels.size(); l-- > 0;) {
    Part piece{l + 1 == levels.size() ? Expr(outermost) : Expr(levels[l].cost.size), {}};
    if (l == 0) piece.size = *rest;
    if (l + 1 == levels.size()) piece.axes = major;
    if (split) piece.axes.insert(piece.axes.end(), levels[l].axes.begin(), levels[l].axes.end());
    parts.push_back(std::move(piece));
  }
  DimSharding result = dim;
  result.parts.erase(result.parts.begin() + part);
  result.parts.insert(result.parts.begin() + part, parts.begin(), parts.end());
  return result;
}

std::optional<LevelSteps> all_gather(const ReshardStep& step, const std::vector<cost::GroupLevel>& levels) {
  const std::vector<AxisRef>& major = step.after.dims[step.dim].parts[step.part].axes;
  auto dim = part_by_levels(step.before.dims[step.dim], step.part, major, levels, true);
  if (!dim) return std::nullopt;
  Sharding start = step.before;
  start.dims[step.dim] = *dim;
  Steps steps(start);
  for (size_t l = levels.size(); l-- > 0;)
    steps.all_gather(levels[l].axes, step.dim, step.part + static_cast<int>(levels.size() - 1 - l));
  return LevelSteps{steps.take(), 1};
}

std::optional<LevelSteps> reduce_scatter(const ReshardStep& step, const std::vector<cost::GroupLevel>& levels) {
  const std::vector<AxisRef>& major = step.before.dims[step.dim].parts[step.part].axes;
  auto dim = part_by_levels(step.before.dims[step.dim], step.part, major, levels, false);
  if (!dim) return std::nullopt;
  Sharding start = partial_by_levels(step, levels);
  start.dims[step.dim] = *dim;
  Steps steps(start);
  for (size_t l = 0; l < levels.size(); ++l)
    steps.reduce_scatter(levels[l].axes, step.reduction, step.dim, step.part + static_cast<int>(levels.size() - 1 - l));
  return LevelSteps{steps.take(), 1};
}

}  // namespace

std::optional<LevelSteps> by_levels(const ReshardStep& step, const std::vector<cost::GroupLevel>& levels,
                                    const Mesh& mesh, const std::map<std::string, int64_t, std::less<>>& hints) {
  switch (step.kind) {
    case ReshardKind::all_reduce:
      return all_reduce(step, levels, mesh, hints);
    case ReshardKind::all_gather:
      return all_gather(step, levels);
    case ReshardKind::reduce_scatter:
      return reduce_scatter(step, levels);
    default:
      return std::nullopt;
  }
}

}  // namespace tessera::passes
