#include "tessera/proof/moves.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/mesh/group.h"

namespace tessera::proof {
namespace {

using Places = std::vector<PlacedAxis>;

bool contains(const Places& places, const PlacedAxis& entry) {
  return std::find(places.begin(), places.end(), entry) != places.end();
}

bool overlaps(const Places& place, const AxisRef& axis) {
  return std::any_of(place.begin(), place.end(), [&](const PlacedAxis& entry) { return entry.axis.overlaps(axis); });
}

// Computes the place of a communication's result; false if its operand is not at the place that it is taken from.
bool move_place(const Communication& communication, const std::vector<AxisRef>& axes, Places& at) {
  const comm::Kind kind = communication.kind;
  auto along = [&](const AxisRef& axis) {
    return std::find_if(at.begin(), at.end(), [&](const PlacedAxis& entry) { return entry.axis == axis; });
  };
  for (size_t a = 0; a < axes.size(); ++a) {
    auto entry = along(axes[a]);
    const int64_t root = digit_of(communication.root, axes, axes[a]);
    if (traits_of(kind).root == RootRole::gives) {
      if (entry == at.end()) continue;  // all ranks have it
      if (entry->index != root) return false;
      at.erase(entry);
    } else if (traits_of(kind).root == RootRole::gets) {
      if (entry != at.end()) return false;
      at.push_back({axes[a], root});
    } else if (kind == comm::Kind::permute && entry != at.end()) {
      const size_t from = static_cast<size_t>(entry->index);
      if (axes.size() > 1 || from >= communication.targets.size() || communication.targets[from] < 0) return false;
      entry->index = communication.targets[from];
    } else if (kind == comm::Kind::permute || entry != at.end() || overlaps(at, axes[a])) {
      return false;  // values that are everywhere are not permuted; a permutation of pieces reorders them
    }
  }
  return true;
}

// An axis of one rank splits nothing.
Sharding without_ones(Sharding sharding) {
  for (DimSharding& dim : sharding.dims)
    for (Part& part : dim.parts) std::erase_if(part.axes, [](const AxisRef& axis) { return axis.size == 1; });
  return sharding;
}

bool reorders(const std::vector<int64_t>& targets, const std::vector<AxisRef>& group, const Part& before,
              const std::vector<AxisRef>& after) {
  const auto is_whole_digit = [&](const AxisRef& axis) {
    return std::any_of(group.begin(), group.end(),
                       [&](const AxisRef& of_group) { return without(of_group, axis).has_value(); });
  };
  // Axes outside the group come first, and stay.
  const auto first = std::find_if(before.axes.begin(), before.axes.end(), is_whole_digit);
  const auto keep = first - before.axes.begin();
  if (std::ssize(after) < keep || !std::equal(before.axes.begin(), first, after.begin())) return false;
  const std::vector<AxisRef> from(first, before.axes.end()), to(after.begin() + keep, after.end());
  for (const auto* axes : {&from, &to})
    if (!std::all_of(axes->begin(), axes->end(), is_whole_digit)) return false;
  if (from.empty() && to.empty()) return true;
  if (ranks_of(from) != ranks_of(to) || !Expr::exact_divide(before.size, ranks_of(before.axes))) return false;
  const auto piece = [&](int64_t member, const std::vector<AxisRef>& axes) {
    int64_t index = 0;
    for (const AxisRef& axis : axes) index = index * axis.size + digit_of(member, group, axis);
    return index;
  };
  for (size_t m = 0; m < targets.size(); ++m)
    if (piece(static_cast<int64_t>(m), from) != piece(targets[m], to)) return false;
  return true;
}

// Whether a permutation gives every member the piece that it has if other axes, or the same axes in another order,
// split a part; the rest of the layout stays.
bool reorders(const Communication& communication, const Sharding& before, const Sharding& after, const Mesh& mesh) {
  const std::vector<AxisRef> group = axes_of(communication, mesh);
  std::vector<int64_t> receivers = communication.targets;
  std::sort(receivers.begin(), receivers.end());
  for (size_t m = 0; m < receivers.size(); ++m)
    if (receivers[m] != static_cast<int64_t>(m)) return false;
  const auto in_group = [&](const AxisRef& axis) {
    return std::any_of(group.begin(), group.end(), [&](const AxisRef& other) { return other.overlaps(axis); });
  };
  for (const PartialAxis& partial : before.partial)
    if (in_group(partial.axis)) return false;
  // Ranks outside the place may drop their copies.
  for (const PlacedAxis& place : after.at)
    if (in_group(place.axis)) return false;
  for (const PlacedAxis& place : before.at)
    if (!contains(after.at, place)) return false;
  if (!same_partials(before.partial, after.partial)) return false;
  if (static_cast<int64_t>(receivers.size()) != ranks_of(group) || before.dims.size() != after.dims.size())
    return false;
  for (size_t d = 0; d < before.dims.size(); ++d) {
    // With the parts that both have.
    auto cuts = boundaries(before.dims[d]);
    for (const Expr& cut : boundaries(after.dims[d])) cuts.push_back(cut);
    auto from = refine(before.dims[d], cuts), to = refine(after.dims[d], cuts);
    if (!from || !to || from->parts.size() != to->parts.size()) return false;
    for (size_t p = 0; p < from->parts.size(); ++p)
      if (!(from->parts[p].size == to->parts[p].size) ||
          !reorders(communication.targets, group, from->parts[p], to->parts[p].axes))
        return false;
  }
  return true;
}

bool partials_overlap(const Partials& partials, const AxisRef& axis) {
  return std::any_of(partials.begin(), partials.end(), [&](const PartialAxis& p) { return p.axis.overlaps(axis); });
}

// For a dimension that has one part.
Part* only_part(Sharding& sharding, int64_t dim) {
  if (dim < 0 || dim >= static_cast<int64_t>(sharding.dims.size())) return nullptr;
  DimSharding& split = sharding.dims[dim];
  if (split.parts.size() != 1) split = canonical(split);
  return split.parts.size() == 1 ? &split.parts[0] : nullptr;
}

// Removes the minor-most axes of the dimension's only part. If the minor digits of a whole axis are gathered, the
// major ones stay.
bool gather(Sharding& sharding, int64_t dim, const std::vector<AxisRef>& axes) {
  Part* part = only_part(sharding, dim);
  if (!part) return false;
  std::vector<AxisRef>& of_part = part->axes;
  std::vector<AxisRef> gone = axes;
  while (!gone.empty()) {
    if (of_part.empty()) return false;
    const AxisRef last = of_part.back(), axis = gone.back();
    of_part.pop_back();
    gone.pop_back();
    auto left = without(last, axis), more = without(axis, last);
    if (!left && !more) return false;
    // Only digits before the removed ones may remain, on either side.
    for (const AxisRef& rest : left ? *left : *more) {
      if (rest.pre > axis.pre || rest.pre > last.pre) return false;
      (left ? of_part : gone).push_back(rest);
    }
  }
  return true;
}

bool split(Sharding& sharding, int64_t dim, const std::vector<AxisRef>& axes) {
  Part* part = only_part(sharding, dim);
  if (!part) return false;
  part->axes.insert(part->axes.end(), axes.begin(), axes.end());
  return true;
}

// The layout after a communication, or why it does not fit the layout before.
struct Moved {
  std::optional<Sharding> after;
  Misfit misfit;
};

Moved moved(const Communication& communication, const Sharding& before, const Mesh& mesh) {
  Sharding result = without_ones(before);
  std::vector<AxisRef> axes = axes_of(communication, mesh);
  if (traits_of(communication.kind).reduces) {
    for (const AxisRef& axis : axes)
      if (!take(result.partial, axis, communication.reduction))
        return {
            .misfit = {
                "layout",
                fmt::format(
                    "{} reduces by {} over {}, but its operand is {}, so replicas would be counted more than once",
                    communication.node->label(), name_of(communication.reduction), axis.str(mesh), before.str(mesh))}};
  } else {
    for (const AxisRef& axis : axes)
      if (partials_overlap(result.partial, axis))
        return {.misfit = {"partial", fmt::format("{} moves parts of {} over {} before they are reduced there",
                                                  communication.node->label(), before.str(mesh), axis.str(mesh))}};
  }
  bool good = move_place(communication, axes, result.at);
  std::erase_if(axes, [](const AxisRef& axis) { return axis.size == 1; });
  switch (traits_of(communication.kind).block) {
    case BlockSide::operand:
      good = good && gather(result, communication.dim, axes);
      break;
    case BlockSide::result:
      good = good && split(result, communication.dim, axes);
      break;
    case BlockSide::both:
      good = good && gather(result, communication.concat_dim, axes) && split(result, communication.split_dim, axes);
      break;
    case BlockSide::none:
      break;
  }
  if (good) return {.after = std::move(result)};
  return {
      .misfit = {
          "layout",
          fmt::format(
              "{} ({}) over {} does not fit {}: no part of that dimension is split that way, or it is at another place",
              communication.node->label(), communication.str(), fmt::join(communication.axes, ","), before.str(mesh))}};
}

}  // namespace

bool take(Partials& partials, const AxisRef& axis, Reduction reduction) {
  for (size_t p = 0; p < partials.size(); ++p) {
    const AxisRef partial = partials[p].axis;
    if (partials[p].reduction != reduction) continue;
    if (auto left = without(partial, axis)) {
      partials.erase(partials.begin() + static_cast<int64_t>(p));
      for (const AxisRef& rest : *left) partials.push_back({rest, reduction});
      return true;
    }
    if (auto more = without(axis, partial)) {
      partials.erase(partials.begin() + static_cast<int64_t>(p));
      return std::all_of(more->begin(), more->end(),
                         [&](const AxisRef& rest) { return take(partials, rest, reduction); });
    }
  }
  return false;
}

bool same_partials(Partials a, const Partials& b) {
  for (const PartialAxis& axis : b)
    if (!take(a, axis.axis, axis.reduction)) return false;
  return a.empty();
}

std::vector<AxisRef> axes_of(const Communication& communication, const Mesh& mesh) {
  return parse_axes(communication.axes, mesh);
}

std::optional<Misfit> misfit_of(const Communication& communication, const Sharding& before, const Sharding& after,
                                const Mesh& mesh) {
  const Sharding wanted = without_ones(after);
  if (communication.kind == comm::Kind::permute && reorders(communication, without_ones(before), wanted, mesh))
    return std::nullopt;
  const Moved made = moved(communication, before, mesh);
  if (!made.after) return made.misfit;
  Sharding expected = *made.after, stated = wanted;
  const bool fits = same_partials(expected.partial, stated.partial);
  expected.partial.clear();
  stated.partial.clear();
  const bool lets_go = std::all_of(expected.at.begin(), expected.at.end(),
                                   [&](const PlacedAxis& entry) { return contains(stated.at, entry); });
  if (lets_go) expected.at = stated.at;
  if (fits && same_layout(expected, stated)) return std::nullopt;
  return Misfit{"layout",
                fmt::format("{} ({}) over {} does not lead from {} to {}; it would give {}",
                            communication.node->label(), communication.str(), fmt::join(communication.axes, ","),
                            before.str(mesh), after.str(mesh), made.after->str(mesh))};
}

}  // namespace tessera::proof
