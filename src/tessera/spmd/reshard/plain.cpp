#include "tessera/spmd/reshard/plain.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::spmd {
namespace {

size_t length_of_prefix(const std::vector<AxisRef>& a, const std::vector<AxisRef>& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

// Axes of one rank split nothing; without them, shardings compare by their effect.
Sharding without_trivial_axes(Sharding sharding) {
  for (DimSharding& dim : sharding.dims) {
    dim.open = false;
    for (Part& part : dim.parts) std::erase_if(part.axes, [](const AxisRef& axis) { return axis.size == 1; });
  }
  std::erase_if(sharding.partial, [](const PartialAxis& axis) { return axis.axis.size == 1; });
  std::erase_if(sharding.at, [](const PlacedAxis& place) { return place.axis.size == 1; });
  return sharding;
}

// One class, because its steps are rules about one state (the current layout and the goal); the first rule that applies
// is taken until none does.
class PlainPlanner {
 public:
  PlainPlanner(const Sharding& from, const Sharding& to)
      : now_(without_trivial_axes(from)), goal_(without_trivial_axes(to)) {}

  const Sharding& now() const { return now_; }
  const Sharding& goal() const { return goal_; }

  // Steps after which both have parts of the same sizes.
  std::vector<ReshardStep> line_up() {
    line_up_parts();
    return std::exchange(steps_, {});
  }

  // The steps from there on.
  std::vector<ReshardStep> plan() {
    split_partial_axes();
    while (forget() || slice() || reduce() || move() || exchange() || reorder() || gather() || broadcast()) {
    }
    for (size_t d = 0; d < now_.dims.size(); ++d)
      check(now_.dims[d].parts == goal_.dims[d].parts, "a reshard plan reaches its goal");
    for (const PartialAxis& axis : goal_.partial)
      check(std::find(now_.partial.begin(), now_.partial.end(), axis) != now_.partial.end(),
            "a reshard's goal is partial only where its source is");
    check(now_.at == goal_.at, "a reshard plan reaches its goal's place");
    return std::move(steps_);
  }

 private:
  std::vector<AxisRef>& now(size_t d, size_t p) { return now_.dims[d].parts[p].axes; }
  const std::vector<AxisRef>& goal(size_t d, size_t p) { return goal_.dims[d].parts[p].axes; }

  template <typename Change>
  void step(ReshardStep made, Change change) {
    made.before = now_;
    change();
    made.after = now_;
    steps_.push_back(std::move(made));
  }

  // Cuts both at the union of their boundaries. If that is not free, slices the other dimensions as in the goal,
  // gathers this one in its current parts, and splits it again into the goal's.
  void line_up_parts() {
    std::vector<size_t> apart;
    for (size_t d = 0; d < now_.dims.size(); ++d) {
      auto cuts = boundaries(now_.dims[d]);
      for (const Expr& cut : boundaries(goal_.dims[d])) cuts.push_back(cut);
      auto a = refine(now_.dims[d], cuts), b = refine(goal_.dims[d], cuts);
      auto same_sizes = [](const DimSharding& x, const DimSharding& y) {
        return std::equal(x.parts.begin(), x.parts.end(), y.parts.begin(), y.parts.end(),
                          [](const Part& p, const Part& q) { return p.size == q.size; });
      };
      if (a && b && same_sizes(*a, *b)) {
        now_.dims[d] = *a;
        goal_.dims[d] = *b;
        continue;
      }
      apart.push_back(d);
    }
    if (apart.empty()) return;
    const std::vector<DimSharding> wanted = goal_.dims;
    for (size_t d : apart) goal_.dims[d] = now_.dims[d];
    while (slice()) {
    }
    goal_.dims = wanted;
    for (size_t d : apart) {
      for (size_t p = 0; p < now_.dims[d].parts.size(); ++p)
        if (!now(d, p).empty())
          step({ReshardKind::all_gather, now(d, p), Reduction::sum, static_cast<int>(d), static_cast<int>(p)},
               [&] { now(d, p).clear(); });
      now_.dims[d] = goal_.dims[d];
      for (Part& part : now_.dims[d].parts) part.axes.clear();
    }
  }

  // Replaces a sum over an axis by sums over its digits, if the goal splits a part over some of these.
  void split_partial_axes() {
    for (const AxisRef& wanted : goal_.axes())
      for (size_t i = 0; i < now_.partial.size(); ++i) {
        const PartialAxis whole = now_.partial[i];
        const auto others = without(whole.axis, wanted);
        if (!others || !pending(whole)) continue;
        now_.partial[i].axis = wanted;
        for (const AxisRef& other : *others) now_.partial.push_back({other, whole.reduction});
      }
  }

  static std::optional<PlacedAxis> place_along(const Sharding& sharding, const AxisRef& axis) {
    for (const PlacedAxis& place : sharding.at)
      if (place.axis == axis) return place;
    return std::nullopt;
  }

  static void settle(std::vector<PlacedAxis>& at, const PlacedAxis& place) {
    at.insert(std::find_if(at.begin(), at.end(), [&](const auto& other) { return place.axis < other.axis; }), place);
  }

  bool forget() {
    for (const PlacedAxis& place : goal_.at) {
      if (now_.uses(place.axis)) continue;
      ReshardStep made{ReshardKind::forget, {place.axis}};
      made.root = place.index;
      step(made, [&] { settle(now_.at, place); });
      return true;
    }
    return false;
  }

  // From one place to another; or to the goal's split of the axis; or everywhere, if the goal does not use the axis.
  bool move() {
    for (const PlacedAxis& place : now_.at) {
      const auto wanted = place_along(goal_, place.axis);
      if (wanted == place) continue;
      const PlacedAxis gone = place;
      auto leave = [&] { std::erase(now_.at, gone); };
      if (wanted) {
        ReshardStep made{ReshardKind::permute, {gone.axis}};
        made.root = gone.index;
        made.to_root = wanted->index;
        step(made, [&] {
          leave();
          settle(now_.at, *wanted);
        });
        return true;
      }
      if (auto part = destination(gone.axis)) {
        ReshardStep made{ReshardKind::scatter, {gone.axis}, Reduction::sum};
        made.dim = static_cast<int>(part->first);
        made.part = static_cast<int>(part->second);
        made.root = gone.index;
        step(made, [&] {
          leave();
          now(part->first, part->second).push_back(gone.axis);
        });
        return true;
      }
      if (!goal_.uses(gone.axis)) return broadcast(gone);
    }
    return false;
  }

  bool broadcast(PlacedAxis gone) {
    ReshardStep made{ReshardKind::broadcast, {gone.axis}};
    made.root = gone.index;
    step(made, [&] { std::erase(now_.at, gone); });
    return true;
  }
  bool broadcast() {
    for (const PlacedAxis& place : now_.at)
      if (std::find(goal_.at.begin(), goal_.at.end(), place) == goal_.at.end()) return broadcast(place);
    return false;
  }

  bool slice() {
    for (size_t d = 0; d < now_.dims.size(); ++d)
      for (size_t p = 0; p < now_.dims[d].parts.size(); ++p) {
        if (!is_prefix(now(d, p), goal(d, p)) || now(d, p).size() == goal(d, p).size()) continue;
        AxisRef next = goal(d, p)[now(d, p).size()];
        if (now_.uses(next)) continue;
        step({ReshardKind::slice, {next}, Reduction::sum, static_cast<int>(d), static_cast<int>(p)},
             [&] { now(d, p).push_back(next); });
        return true;
      }
    return false;
  }

  bool pending(const PartialAxis& axis) const {
    return std::find(goal_.partial.begin(), goal_.partial.end(), axis) == goal_.partial.end();
  }

  bool reduce() {
    for (const PartialAxis& partial : now_.partial) {
      if (!pending(partial)) continue;
      for (size_t d = 0; d < now_.dims.size(); ++d)
        for (size_t p = 0; p < now_.dims[d].parts.size(); ++p) {
          size_t have = now(d, p).size();
          if (!is_prefix(now(d, p), goal(d, p)) || have == goal(d, p).size() || !(goal(d, p)[have] == partial.axis))
            continue;
          scatter_sum(partial, d, p);
          return true;
        }
    }
    for (const PartialAxis& partial : now_.partial) {
      if (!pending(partial)) continue;
      for (size_t d = 0; d < now_.dims.size(); ++d)
        for (size_t p = 0; p < now_.dims[d].parts.size(); ++p) {
          if (!contains(goal(d, p), partial.axis) || !reordered(d, p, with_scattered(d, p))) continue;
          scatter_sum(partial, d, p);
          return true;
        }
    }
    for (const PartialAxis& partial : now_.partial) {
      const auto place = place_along(goal_, partial.axis);
      if (!place || !pending(partial)) continue;
      ReshardStep made{ReshardKind::reduce, {partial.axis}, partial.reduction};
      made.root = place->index;
      const PartialAxis gone = partial;
      step(made, [&] {
        std::erase(now_.partial, gone);
        settle(now_.at, *place);
      });
      return true;
    }
    auto first =
        std::find_if(now_.partial.begin(), now_.partial.end(), [&](const auto& axis) { return pending(axis); });
    if (first == now_.partial.end()) return false;
    Reduction reduction = first->reduction;
    ReshardStep made{ReshardKind::all_reduce, {}, reduction};
    for (const PartialAxis& axis : now_.partial)
      if (pending(axis) && axis.reduction == reduction) made.axes.push_back(axis.axis);
    made.axes = join_axes(made.axes);
    step(made, [&] {
      std::erase_if(now_.partial,
                    [&](const PartialAxis& axis) { return pending(axis) && axis.reduction == reduction; });
    });
    return true;
  }

  void scatter_sum(PartialAxis gone, size_t d, size_t p) {
    step({ReshardKind::reduce_scatter, {gone.axis}, gone.reduction, static_cast<int>(d), static_cast<int>(p)}, [&] {
      std::erase(now_.partial, gone);
      now(d, p).push_back(gone.axis);
    });
  }

  // The part's axes after sums are scattered to the axes that split it in the goal.
  std::vector<AxisRef> with_scattered(size_t d, size_t p) {
    std::vector<AxisRef> axes = now(d, p);
    for (const PartialAxis& partial : now_.partial)
      if (pending(partial) && contains(goal(d, p), partial.axis)) axes.push_back(partial.axis);
    return axes;
  }

  // A part's axes before and after one permutation.
  struct Reordering {
    std::vector<AxisRef> sliced;  // before it, which is free
    std::vector<AxisRef> after;
    std::vector<AxisRef> group;
  };

  // How to reorder a part that is split over `have` on the way to its goal: after the prefix that stays, the goal's
  // axes come first; the axes that the goal lacks follow, and are gathered afterwards. If equally many ranks hold the
  // pieces, they take them directly. Nullopt if pieces differ in size, axes are not free, or a gather moves no more.
  std::optional<Reordering> reordered(size_t d, size_t p, const std::vector<AxisRef>& have) {
    const auto& wanted = goal(d, p);
    const auto keep = static_cast<ptrdiff_t>(length_of_prefix(have, wanted));
    const std::vector<AxisRef> from(have.begin() + keep, have.end()), to(wanted.begin() + keep, wanted.end());
    if (from.empty() || to.empty()) return std::nullopt;
    Reordering result{{}, wanted, from};
    for (const AxisRef& axis : to)
      if (!contains(from, axis)) {
        if (now_.uses(axis)) return std::nullopt;
        result.group.push_back(axis);
        result.sliced.push_back(axis);
      }
    const int64_t before = ranks_of(from), after = ranks_of(to);
    int64_t pieces = ranks_of(have);
    bool has_other_use = false;
    if (before == after) {
      result.sliced.clear();
    } else {
      pieces *= ranks_of(result.sliced);
      for (const AxisRef& axis : from)
        if (!contains(to, axis)) {
          result.after.push_back(axis);
          has_other_use |= goal_.uses(axis);
        }
    }
    // Reordering and then gathering moves 1/after of the whole, gathering all and slicing 1 - 1/before.
    if (!has_other_use && before >= after * (before - 1)) return std::nullopt;
    if (!Expr::exact_divide(now_.dims[d].parts[p].size, pieces)) return std::nullopt;
    return result;
  }

  bool reorder() {
    for (size_t d = 0; d < now_.dims.size(); ++d)
      for (size_t p = 0; p < now_.dims[d].parts.size(); ++p) {
        const auto made = reordered(d, p, now(d, p));
        if (!made) continue;
        const int dim = static_cast<int>(d), part = static_cast<int>(p);
        for (const AxisRef& axis : made->sliced)
          step({ReshardKind::slice, {axis}, Reduction::sum, dim, part}, [&] { now(d, p).push_back(axis); });
        step({ReshardKind::reorder, made->group, Reduction::sum, dim, part}, [&] { now(d, p) = made->after; });
        return true;
      }
    return false;
  }

  // A part whose last axis must be removed, and the part that must gain it next.
  std::optional<std::pair<size_t, size_t>> destination(const AxisRef& axis) {
    for (size_t d = 0; d < now_.dims.size(); ++d)
      for (size_t p = 0; p < now_.dims[d].parts.size(); ++p) {
        size_t have = now(d, p).size();
        if (is_prefix(now(d, p), goal(d, p)) && have < goal(d, p).size() && goal(d, p)[have] == axis)
          return std::pair{d, p};
      }
    return std::nullopt;
  }

  bool exchange() {
    for (size_t d = 0; d < now_.dims.size(); ++d)
      for (size_t p = 0; p < now_.dims[d].parts.size(); ++p) {
        if (now(d, p).size() <= length_of_prefix(now(d, p), goal(d, p))) continue;
        AxisRef axis = now(d, p).back();
        auto place = destination(axis);
        if (!place || *place == std::pair{d, p}) continue;
        const size_t to_dim = place->first, to_part = place->second;
        step({ReshardKind::all_to_all,
              {axis},
              Reduction::sum,
              static_cast<int>(d),
              static_cast<int>(p),
              static_cast<int>(to_dim),
              static_cast<int>(to_part)},
             [&] {
               now(d, p).pop_back();
               now(to_dim, to_part).push_back(axis);
             });
        return true;
      }
    return false;
  }

  bool gather() {
    for (size_t d = 0; d < now_.dims.size(); ++d)
      for (size_t p = 0; p < now_.dims[d].parts.size(); ++p) {
        size_t keep = length_of_prefix(now(d, p), goal(d, p)), end = now(d, p).size();
        if (end <= keep) continue;
        if (const auto place = place_along(goal_, now(d, p).back())) {
          ReshardStep made{
              ReshardKind::gather, {place->axis}, Reduction::sum, static_cast<int>(d), static_cast<int>(p)};
          made.root = place->index;
          step(made, [&] {
            now(d, p).pop_back();
            settle(now_.at, *place);
          });
          return true;
        }
        // Gathers from the minor end, stopping if an axis could next go by all-to-all, or to a place.
        size_t begin = end - 1;
        while (begin > keep && !destination(now(d, p)[begin - 1]) && !place_along(goal_, now(d, p)[begin - 1])) --begin;
        std::vector<AxisRef> axes(now(d, p).begin() + static_cast<long>(begin), now(d, p).end());
        step({ReshardKind::all_gather, join_axes(axes), Reduction::sum, static_cast<int>(d), static_cast<int>(p)},
             [&] { now(d, p).resize(begin); });
        return true;
      }
    return false;
  }

  Sharding now_, goal_;
  std::vector<ReshardStep> steps_;
};

}  // namespace

PlainPlan plain_plan(const Sharding& from, const Sharding& to) {
  PlainPlanner planner(from, to);
  PlainPlan plan;
  plan.line_up = planner.line_up();
  plan.from = planner.now();
  plan.to = planner.goal();
  plan.steps = planner.plan();
  return plan;
}

}  // namespace tessera::spmd
