#pragma once

#include <vector>

#include "tessera/bind/groups.h"
#include "tessera/bind/schedule.h"
#include "tessera/ir/flow_role.h"

namespace tessera::bind {

/// The branches and loops of a program, and the groups in them.
struct Regions {
  flow::Flow flow;
  std::vector<int> of_group;  ///< the innermost one in `flow`; -1: none

  bool empty() const { return flow.empty(); }
};

Regions regions_of(const Graph& graph, const std::vector<NodeGroup>& groups);

/// By region: from the first action in it to the last.
std::vector<Span> spans_of_regions(const Regions& regions, const std::vector<Span>& spans_of_groups, int actions);

/// By group: its section. No step leaves its section, and no communication is under way where one ends; a branch and
/// each part of an iteration is one, or several.
std::vector<int> sections_of(const Regions& regions, const std::vector<NodeGroup>& groups);

}  // namespace tessera::bind
