#include "tessera/cost/prices.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::cost {
namespace {

// Interpolates seconds between measured sizes, linearly in bytes; beyond the last one, in proportion to its slope.
double at(const std::vector<std::pair<double, double>>& points, double bytes) {
  const auto above = std::lower_bound(points.begin(), points.end(), std::pair(bytes, 0.0));
  if (above == points.begin()) return points.front().second;
  if (above == points.end() && points.size() == 1) return points.front().second * bytes / points.front().first;
  const auto high = above == points.end() ? points.end() - 1 : above, low = high - 1;
  const double slope = (high->second - low->second) / (high->first - low->first);
  return low->second + slope * (bytes - low->first);
}

}  // namespace

std::optional<double> measured_time(const MachineModel& machine, std::string_view engine, Collective kind,
                                    int64_t members, int64_t ranks, double bytes) {
  for (const MachineModel::Collective& measured : machine.collectives)
    if ((engine.empty() || measured.engine == engine) && measured.kind == traits_of(kind).name &&
        measured.members == members && measured.ranks == ranks)
      return at(measured.points, bytes);
  return std::nullopt;
}

bool moves_in_background(std::string_view engine) {
  return engine == "gloo" || engine == "mpi";
}

Prices::Prices(MachineModel machine, const Mesh& mesh, const Topology& topology)
    : machine_(std::move(machine)),
      mesh_(mesh),
      topology_(topology.empty() && mesh.size() > 1 ? machine_.topology(mesh) : topology),
      times_(machine_) {}

int64_t Prices::far_units(const std::vector<AxisRef>& axes) const {
  const std::vector<Level>& all = levels(axes);
  return all.size() > 1 ? all.back().size : 0;
}

const std::vector<Level>& Prices::levels(const std::vector<AxisRef>& axes) const {
  const std::lock_guard lock(knowing_);
  const auto [known, added] = levels_.emplace(axes, std::vector<Level>());
  if (!added) return known->second;
  std::vector<Level>& levels = known->second;
  for (const GroupLevel& level : levels_of(axes, mesh_, topology_)) levels.push_back(level.cost);
  if (!levels.empty()) return levels;
  // A sub-axis that ends within a level: as if every message took the axis' slowest links.
  for (const AxisRef& axis : axes) {
    const Topology::Axis* links = topology_.find(axis.axis);
    if (!links) return levels = {};
    Level slowest{axis.size};
    for (const LinkLevel& level : links->levels) {
      slowest.alpha = std::max(slowest.alpha, level.alpha);
      slowest.beta = std::max(slowest.beta, 1 / level.bandwidth);
    }
    levels.push_back(slowest);
  }
  return levels;
}

double Prices::collective(Collective kind, const std::vector<AxisRef>& axes, double bytes) const {
  const int64_t members = ranks_of(axes);
  if (members == 1) return 0;
  if (const auto measured = measured_time(machine_, "", kind, members, mesh_.size(), bytes)) return *measured;
  const std::vector<Level>& costs = levels(axes);
  if (costs.empty()) {
    std::vector<std::string> names;
    for (const AxisRef& axis : axes) names.push_back(axis.str(mesh_));
    fail("machine", "{} says nothing of links over {}; give the machine file levels of links, or a topology",
         machine_.source, fmt::join(names, ","));
  }
  if (traits_of(kind).message || kind == Collective::permute)  // may go as far as the farthest level
    return costs.back().alpha + bytes * costs.back().beta;
  return std::min(flat_time(kind, costs, bytes), hierarchical_time(kind, costs, bytes));
}

}  // namespace tessera::cost
