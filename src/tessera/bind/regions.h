#pragma once

#include <vector>

#include "tessera/bind/groups.h"
#include "tessera/bind/schedule.h"
#include "tessera/ir/flow_role.h"

namespace tessera::bind {

/// The branches and loops of a program, and which groups are in them.
struct Regions {
  flow::Flow flow;
  std::vector<int> of_group;  ///< the innermost region in `flow`; -1: none

  bool empty() const { return flow.empty(); }
};

Regions regions_of(const Graph& graph, const std::vector<NodeGroup>& groups);

/// For each region, its first and last action.
std::vector<Span> spans_of_regions(const Regions& regions, const std::vector<Span>& spans_of_groups, int actions);

/// For each group, its section. No step leaves its section, and no communication is under way when a section ends. A
/// branch, or each part of an iteration, is one section or several.
std::vector<int> sections_of(const Regions& regions, const std::vector<NodeGroup>& groups);

}  // namespace tessera::bind
