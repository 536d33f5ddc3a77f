#include "tessera/cost/links.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::cost {
namespace {

// Splits an axis or sub-axis at the boundaries of its levels, nearest first. `ranks`: the number of ranks along the
// mesh's later axes; `members`: the number of members that the group has so far.
bool cut(const AxisRef& axis, const Topology::Axis& links, int64_t total, int64_t ranks, int64_t& members,
         std::vector<GroupLevel>& into) {
  // Strides of digits: the sub-axis has those from `first` to `end`, a level those from `low` to `high`.
  const int64_t first = total / (axis.pre * axis.size), end = total / axis.pre;
  int64_t low = 1;
  for (const LinkLevel& level : links.levels) {
    const int64_t high = low * level.size, from = std::max(first, low), to = std::min(end, high);
    if (from < to) {
      if (to % from != 0 || from % low != 0) return false;
      const int64_t size = to / from;
      // All ranks of a unit share its link; those of one group count once.
      const double sharing = static_cast<double>(ranks * low) / static_cast<double>(members);
      into.push_back({{{axis.axis, total / to, size}}, {size, level.alpha, sharing / level.bandwidth}, level.name});
      members *= size;
    }
    low = high;
  }
  return true;
}

}  // namespace

std::vector<GroupLevel> levels_of(const std::vector<AxisRef>& axes, const Mesh& mesh, const Topology& topology) {
  std::vector<GroupLevel> levels;
  int64_t members = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    if (axis->size == 1) continue;
    const auto index = mesh.find(axis->axis);
    check(index.has_value(), "a group's axis is on the mesh");
    const Topology::Axis* links = topology.find(axis->axis);
    if (!links) return {};
    int64_t ranks = 1;
    for (size_t i = *index + 1; i < mesh.axes().size(); ++i) ranks *= mesh.axes()[i].size;
    if (!cut(*axis, *links, mesh.axes()[*index].size, ranks, members, levels)) return {};
  }
  std::vector<GroupLevel> merged;
  for (GroupLevel& level : levels) {
    if (merged.empty() || merged.back().cost.alpha != level.cost.alpha || merged.back().cost.beta != level.cost.beta) {
      merged.push_back(std::move(level));
      continue;
    }
    GroupLevel& nearer = merged.back();
    nearer.axes.insert(nearer.axes.begin(), level.axes.begin(), level.axes.end());
    nearer.axes = join_axes(nearer.axes);
    nearer.cost.size *= level.cost.size;
  }
  return merged;
}

}  // namespace tessera::cost
