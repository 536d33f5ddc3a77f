#include "tessera/spmd/reshard/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/spmd/reshard/digits.h"

namespace tessera::spmd {
namespace {

constexpr double kAnyExtent = 720720;  // the least common multiple of 1 … 16
constexpr size_t kMostLayouts = 400;   // that a search visits
constexpr size_t kMostOrders = 100;    // of axes that a permutation from one layout tries

// The elements of the largest shard.
double elements_of(const Sharding& sharding, const StepCost& cost) {
  double elements = 1;
  for (const DimSharding& dim : sharding.dims)
    for (const Part& part : dim.parts) {
      double extent = cost.extent(part.size);
      for (const AxisRef& axis : part.axes) extent = std::ceil(extent / static_cast<double>(axis.size));
      elements *= extent;
    }
  return elements;
}

// That of communications first, then how many there are, then how many steps there are in all.
struct Cost {
  double moving = 0;
  int communications = 0;
  int steps = 0;
  auto operator<=>(const Cost&) const = default;
};

Cost operator+(const Cost& a, const Cost& b) {
  return {a.moving + b.moving, a.communications + b.communications, a.steps + b.steps};
}

Cost cost_of(const std::vector<ReshardStep>& steps, const StepCost& cost, DType dtype) {
  Cost sum;
  for (const ReshardStep& step : steps) {
    const auto collective = collective_of(step.kind);
    if (!collective) {
      sum = sum + Cost{0, 0, 1};
      continue;
    }
    sum = sum +
          Cost{cost.of(*collective, step.axes, elements_of(step.before, cost), elements_of(step.after, cost), dtype), 1,
               1};
  }
  return sum;
}

// A layout on the way: axes by number, and the sums that are not reduced yet.
struct Between {
  std::vector<std::vector<int>> parts;  // of all dimensions, major to minor
  std::set<int> sums;
  auto operator<=>(const Between&) const = default;
};

// A step between two such layouts.
struct Move {
  ReshardKind kind = ReshardKind::slice;
  std::vector<int> axes;
  size_t part = 0, to_part = 0;  // to_part: for an exchange
};

class Search {
 public:
  Search(const Sharding& from, const Sharding& to, const StepCost& cost, DType dtype)
      : cost_(cost), dtype_(dtype), frame_(from) {
    const Digits digits({&from, &to});
    for (size_t d = 0; d < from.dims.size(); ++d)
      for (size_t p = 0; p < from.dims[d].parts.size(); ++p) {
        at_.emplace_back(static_cast<int>(d), static_cast<int>(p));
        extents_.push_back(cost.extent(from.dims[d].parts[p].size));
        begin_.parts.push_back(numbers(digits.of(from.dims[d].parts[p])));
        goal_.parts.push_back(numbers(digits.of(to.dims[d].parts[p])));
      }
    for (const PlacedAxis& place : from.at) beside_.push_back(place.axis);
    frame_.partial.clear();
    for (const PartialAxis& partial : from.partial) {
      if (std::find(to.partial.begin(), to.partial.end(), partial) != to.partial.end()) {
        frame_.partial.push_back(partial);  // it stays
        beside_.push_back(partial.axis);
        continue;
      }
      for (const AxisRef& digit : digits.of(partial.axis)) {
        const int axis = number(digit);
        begin_.sums.insert(axis);
        reductions_[axis] = partial.reduction;
      }
    }
  }

  std::optional<std::vector<ReshardStep>> below(const Cost& bound) {
    reach(begin_, {}, std::nullopt);
    while (!open_.empty()) {
      auto [cost, layout] = *open_.begin();
      open_.erase(open_.begin());
      if (cost >= bound || ++visited_ > kMostLayouts) return std::nullopt;
      if (layout == goal_) return steps_to(layout);
      bound_ = bound;
      now_ = layout;
      spent_ = cost;
      slice();
      scatter();
      reduce();
      gather();
      exchange();
      permute();
    }
    return std::nullopt;
  }

 private:
  struct Way {
    Cost cost;
    std::optional<Move> move;  // the last one; none at the start
    Between before;
  };

  int number(const AxisRef& axis) {
    const auto known = std::find(axes_.begin(), axes_.end(), axis) - axes_.begin();
    if (known == std::ssize(axes_)) axes_.push_back(axis);
    return static_cast<int>(known);
  }
  std::vector<int> numbers(const std::vector<AxisRef>& axes) {
    std::vector<int> result;
    for (const AxisRef& axis : axes) result.push_back(number(axis));
    return result;
  }
  std::vector<AxisRef> named(const std::vector<int>& axes) const {
    std::vector<AxisRef> result;
    for (int axis : axes) result.push_back(axes_[axis]);
    return result;
  }

  Part& part_of(Sharding& sharding, size_t part) const {
    return sharding.dims[at_[part].first].parts[at_[part].second];
  }
  const Expr& size_of(size_t part) const { return frame_.dims[at_[part].first].parts[at_[part].second].size; }

  Sharding sharding_of(const Between& layout) const {
    Sharding result = frame_;
    for (size_t part = 0; part < at_.size(); ++part) {
      Part& made = part_of(result, part);
      made.axes = named(layout.parts[part]);
      made.axes = join_even(made);
    }
    for (int axis : layout.sums) result.partial.push_back({axes_[axis], reductions_.at(axis)});
    return result;
  }

  // The elements of the largest shard.
  double elements_of(const Between& layout) const {
    double elements = 1;
    for (size_t part = 0; part < at_.size(); ++part) {
      double extent = extents_[part];
      for (int axis : layout.parts[part]) extent = std::ceil(extent / static_cast<double>(axes_[axis].size));
      elements *= extent;
    }
    return elements;
  }

  Cost cost_of(const Move& move, const Between& next) {
    const auto collective = collective_of(move.kind);
    if (!collective) return {0, 0, 1};
    return {cost_.of(*collective, group_of(move.axes), elements_of(now_), elements_of(next), dtype_), 1, 1};
  }

  const std::vector<AxisRef>& group_of(const std::vector<int>& axes) {
    const auto [known, added] = groups_.try_emplace(axes);
    if (added) known->second = named(axes);
    return known->second;
  }

  void reach(const Between& layout, const Cost& cost, std::optional<Move> move) {
    const auto known = ways_.find(layout);
    if (known != ways_.end()) {
      if (known->second.cost <= cost) return;
      open_.erase({known->second.cost, layout});
    }
    ways_[layout] = {cost, std::move(move), now_};
    open_.emplace(cost, layout);
  }

  void go(const Between& next, Move move) {
    const Cost cost = spent_ + cost_of(move, next);
    if (cost < bound_) reach(next, cost, std::move(move));
  }

  ReshardStep step_of(const Move& move, const Between& before, const Between& after) const {
    // A split over digits, one after the other, is one over the axis only where it is even.
    const bool splits = move.kind == ReshardKind::reduce_scatter || move.kind == ReshardKind::all_to_all;
    ReshardStep step{move.kind, splits ? named(move.axes) : join_axes(named(move.axes))};
    std::tie(step.dim, step.part) = at_[move.part];
    if (move.kind == ReshardKind::all_to_all) std::tie(step.to_dim, step.to_part) = at_[move.to_part];
    if (const auto sum = reductions_.find(move.axes.front()); sum != reductions_.end()) step.reduction = sum->second;
    step.before = sharding_of(before);
    step.after = sharding_of(after);
    return step;
  }

  bool is_free(int axis) const {
    const auto overlaps = [&](int other) { return axes_[axis].overlaps(axes_[other]); };
    const auto among = [&](const auto& axes) { return std::any_of(axes.begin(), axes.end(), overlaps); };
    return !among(now_.sums) && std::none_of(now_.parts.begin(), now_.parts.end(), among) &&
           std::none_of(beside_.begin(), beside_.end(),
                        [&](const AxisRef& other) { return axes_[axis].overlaps(other); });
  }
  static bool has(const std::vector<int>& axes, int axis) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  }

  // Any part may be sliced: a split in the wrong place moves to the right one by a later exchange, which moves less
  // after the slice.
  void slice() {
    for (int axis = 0; axis < static_cast<int>(axes_.size()); ++axis)
      for (size_t part = 0; part < at_.size(); ++part) {
        if (!is_wanted(axis) || !is_free(axis)) continue;
        Between next = now_;
        next.parts[part].push_back(axis);
        go(next, {ReshardKind::slice, {axis}, part});
      }
  }

  // Also scatters onto parts that the goal does not split in this way: a later gather or exchange then moves only a
  // part of the sum.
  void scatter() {
    for (size_t part = 0; part < at_.size(); ++part)
      for (int first : now_.sums) scatter(part, {first});
  }

  void scatter(size_t part, const std::vector<int>& axes) {
    Between next = now_;
    for (int axis : axes) {
      next.sums.erase(axis);
      next.parts[part].push_back(axis);
    }
    go(next, {ReshardKind::reduce_scatter, axes, part});
    for (int axis : now_.sums)
      if (!has(axes, axis) && reductions_.at(axis) == reductions_.at(axes.front())) {
        std::vector<int> more = axes;
        more.push_back(axis);
        scatter(part, more);
      }
  }

  // Reduces all sums of one reduction, or only those over axes that split nothing in the goal.
  void reduce() {
    std::set<std::vector<int>> groups;
    for (int first : now_.sums)
      for (const bool all : {true, false}) {
        std::vector<int> group;
        for (int axis : now_.sums)
          if (reductions_.at(axis) == reductions_.at(first) && (all || !is_wanted(axis))) group.push_back(axis);
        if (!group.empty()) groups.insert(std::move(group));
      }
    for (const std::vector<int>& group : groups) {
      Between next = now_;
      for (int axis : group) next.sums.erase(axis);
      go(next, {ReshardKind::all_reduce, group});
    }
  }

  bool is_wanted(int axis) const {
    return std::any_of(goal_.parts.begin(), goal_.parts.end(), [&](const auto& axes) { return has(axes, axis); });
  }

  void gather() {
    for (size_t part = 0; part < at_.size(); ++part)
      for (size_t left = 0; left < now_.parts[part].size(); ++left) {
        Between next = now_;
        const std::vector<int> gone = cut_behind(next.parts[part], left);
        go(next, {ReshardKind::all_gather, gone, part});
      }
  }

  static std::vector<int> cut_behind(std::vector<int>& axes, size_t left) {
    std::vector<int> gone(axes.begin() + static_cast<ptrdiff_t>(left), axes.end());
    axes.resize(left);
    return gone;
  }

  void exchange() {
    for (size_t part = 0; part < at_.size(); ++part)
      for (size_t left = 0; left < now_.parts[part].size(); ++left)
        for (size_t to = 0; to < at_.size(); ++to) {
          if (to == part) continue;
          Between next = now_;
          const std::vector<int> moved = cut_behind(next.parts[part], left);
          next.parts[to].insert(next.parts[to].end(), moved.begin(), moved.end());
          go(next, {ReshardKind::all_to_all, moved, part, to});
        }
  }

  // Equal pieces change ranks: every part keeps its number of pieces, but other axes split it, or the same axes in
  // another order.
  void permute() {
    orders_ = 0;
    Between next = now_;
    permute_from(0, next);
  }

  void permute_from(size_t part, Between& next) {
    if (orders_ > kMostOrders) return;
    if (part == at_.size()) {
      ++orders_;
      if (next == now_ || !is_layout(next)) return;
      std::vector<int> group;
      for (const auto* layout : {&now_, &next})
        for (size_t q = 0; q < at_.size(); ++q)
          if (now_.parts[q] != next.parts[q])
            for (int axis : layout->parts[q])
              if (!has(group, axis)) group.push_back(axis);
      std::sort(group.begin(), group.end(), [&](int a, int b) { return axes_[a] < axes_[b]; });
      go(next, {ReshardKind::reorder, group});
      return;
    }
    permute_from(part + 1, next);
    const int64_t pieces = ranks_of(named(now_.parts[part]));
    if (pieces == 1 || !Expr::exact_divide(size_of(part), pieces)) return;
    const std::vector<int> kept = next.parts[part];
    next.parts[part].clear();
    order(part, pieces, next);
    next.parts[part] = kept;
  }

  // Appends axes to the part until it has that many pieces.
  void order(size_t part, int64_t pieces, Between& next) {
    if (pieces == 1) {
      if (next.parts[part] != now_.parts[part]) permute_from(part + 1, next);
      return;
    }
    for (int axis = 0; axis < static_cast<int>(axes_.size()); ++axis) {
      if (pieces % axes_[axis].size != 0 || !may_take(axis, part, next)) continue;
      next.parts[part].push_back(axis);
      order(part, pieces / axes_[axis].size, next);
      next.parts[part].pop_back();
    }
  }

  // An axis that splits nothing now, or splits a part that can be permuted and does not keep it.
  bool may_take(int axis, size_t part, const Between& next) const {
    for (size_t q = 0; q <= part; ++q)
      if (has(next.parts[q], axis)) return false;
    for (size_t q = 0; q < at_.size(); ++q)
      if (has(now_.parts[q], axis))
        return static_cast<bool>(Expr::exact_divide(size_of(q), ranks_of(named(now_.parts[q]))));
    return is_free(axis);
  }

  static bool is_layout(const Between& next) {
    std::set<int> used;
    size_t count = 0;
    for (const std::vector<int>& axes : next.parts) {
      count += axes.size();
      used.insert(axes.begin(), axes.end());
    }
    return used.size() == count;
  }

  std::vector<ReshardStep> steps_to(Between layout) const {
    std::vector<ReshardStep> steps;
    for (const Way* way = &ways_.at(layout); way->move; way = &ways_.at(layout)) {
      steps.push_back(step_of(*way->move, way->before, layout));
      layout = way->before;
    }
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

  const StepCost& cost_;
  const DType dtype_;
  Sharding frame_;               // sizes of parts, places, and the partial axes that stay
  std::vector<AxisRef> beside_;  // the axes of places and of partial sums that stay
  std::vector<AxisRef> axes_;
  std::vector<std::pair<int, int>> at_;  // dimension and part of each part
  std::vector<double> extents_;          // of each part
  std::map<int, Reduction> reductions_;
  Between begin_, goal_, now_;
  Cost bound_, spent_;
  std::map<Between, Way> ways_;
  std::map<std::vector<int>, std::vector<AxisRef>> groups_;  // by numbers of axes
  std::set<std::pair<Cost, Between>> open_;
  size_t visited_ = 0, orders_ = 0;
};

}  // namespace

double StepCost::extent(const Expr& size) const {
  const auto constant = size.constant();
  return constant ? static_cast<double>(*constant) : kAnyExtent;
}

double StepCost::of(Collective collective, const std::vector<AxisRef>& axes, double in, double out, DType) const {
  return received(collective, in, out, ranks_of(axes),
                  [](double whole, int64_t members) { return std::floor(whole / static_cast<double>(members)); });
}

double elements_received(const std::vector<ReshardStep>& steps) {
  return cost_of(steps, {}, DType::undefined).moving;
}

bool search_covers(const Sharding& from, const Sharding& to) {
  return from.at == to.at && std::all_of(from.partial.begin(), from.partial.end(), [&](const PartialAxis& partial) {
           return partial.reduction == from.partial.front().reduction;
         });
}

std::optional<std::vector<ReshardStep>> cheaper_steps(const Sharding& from, const Sharding& to,
                                                      const std::vector<ReshardStep>& than, const StepCost& cost,
                                                      DType dtype) {
  return Search(from, to, cost, dtype).below(cost_of(than, cost, dtype));
}

}  // namespace tessera::spmd
