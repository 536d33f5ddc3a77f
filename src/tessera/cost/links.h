#pragma once

#include <string>
#include <vector>

#include "tessera/cost/collectives.h"
#include "tessera/mesh/sharding.h"
#include "tessera/mesh/topology.h"

namespace tessera::cost {

/// The part of a group that communicates over links of one kind.
struct GroupLevel {
  std::vector<AxisRef> axes;  ///< major first
  Level cost;
  std::string name;  ///< name of the links; may be empty
};

/// The links of the group of ranks that differ only along `axes` (row-major, as collectives name them), the nearest
/// level first; neighbouring levels of equal cost merge. Empty if the topology lacks an axis of more than one rank, or
/// if a sub-axis ends within a level.
///
/// Example: tp=8 joins 4 ranks by memory and 2 such hosts by ethernet; the group of tp has the levels tp:(2)4 and
/// tp:(1)2. On dp=2,tp=4 with dp by ethernet, the four groups of dp share a host's link, so its beta counts four times.
std::vector<GroupLevel> levels_of(const std::vector<AxisRef>& axes, const Mesh& mesh, const Topology& topology);

}  // namespace tessera::cost
