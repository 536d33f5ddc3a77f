#pragma once

#include <set>

#include "tessera/spmd/decide/costs.h"
#include "tessera/spmd/decide/decide.h"

namespace tessera::spmd {

/// Which nodes should take their operator's finer rule (ops::OpDef::finer_rule)? Example: 8 query heads share 2 key
/// heads. By the first rule a rank gets whole key heads with their 4 query heads, so that one of 3 ranks is idle; by
/// the finer rule the ranks get 3, 3 and 2 query heads, and all key heads. Rules decide the parts of all values, so
/// layouts are found with the first rules and, if there are such nodes, again with the finer ones; the cheaper result
/// is used.

/// The nodes that axes split unevenly along factors which the finer rule does not have.
std::set<const Node*> nodes_for_finer_rules(const Layout& layout, const Decisions& decisions, const Hints& hints);

/// The work of the busiest rank: its share of every node, the bytes that it receives, and the number of layout changes,
/// in floating-point operations or, if a machine is named, in seconds.
double busiest_work(const Graph& graph, const Layout& layout, const Decisions& decisions, const Costs& costs);

}  // namespace tessera::spmd
