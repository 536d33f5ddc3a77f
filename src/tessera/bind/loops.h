#pragma once

#include "tessera/bind/results.h"

namespace tessera::bind {

/// Buffers that live as long as their loop: two for each carried value, and those of what iterations write row by row.
struct Carried {
  std::vector<LoopPlan> loops;  ///< with their names and the buffers that change places
  Destinations direct;          ///< results that are made there
};

/// `taken`: results that are made elsewhere.
Carried place_carried(const Subject& subject, const std::vector<NodeGroup>& groups, const Values& values,
                      const Regions& regions, const Order& order, const Uses& uses, const Destinations& taken,
                      Arena& arena);

/// The step that comes next, where the order alone does not say it.
struct Controls {
  std::vector<Control> controls;
  std::vector<LoopPlan> loops;
  std::vector<BranchPlan> branches;
};

/// Made from the order of the actions, once all places are known. `loops`: as place_carried() made them.
Controls controls_of(const std::vector<NodeGroup>& groups, const Regions& regions, const std::vector<Action>& actions,
                     const std::vector<std::shared_ptr<Step>>& steps, std::vector<LoopPlan> loops);

}  // namespace tessera::bind
