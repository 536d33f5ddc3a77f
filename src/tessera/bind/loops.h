#pragma once

#include "tessera/bind/results.h"

namespace tessera::bind {

/// Buffers that live as long as their loop: two for each carried value, and one for each output that iterations write
/// row by row.
struct Carried {
  std::vector<LoopPlan> loops;  ///< with their names, and the buffers that are exchanged
  Destinations direct;          ///< results that are made in these buffers
};

/// `taken`: results that already have a place.
Carried place_carried(const Subject& subject, const std::vector<NodeGroup>& groups, const Values& values,
                      const Regions& regions, const Order& order, const Uses& uses, const Destinations& taken,
                      Arena& arena);

/// How branches and loops change which step comes next.
struct Controls {
  std::vector<Control> controls;
  std::vector<LoopPlan> loops;
  std::vector<BranchPlan> branches;
};

/// Call it when all places are known. `loops`: from place_carried().
Controls controls_of(const std::vector<NodeGroup>& groups, const Regions& regions, const std::vector<Action>& actions,
                     const std::vector<std::shared_ptr<Step>>& steps, std::vector<LoopPlan> loops);

}  // namespace tessera::bind
