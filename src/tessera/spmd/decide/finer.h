#pragma once

#include <set>

#include "tessera/spmd/decide/decide.h"

namespace tessera::spmd {

/// Which nodes should take their operator's finer rule (ops::OpDef::finer_rule)? Example: 8 query heads share 2 key
/// heads. By the first rule a rank gets whole key heads with their 4 query heads, so that of 3 ranks one is idle; by
/// the finer one, 3, 3 and 2 query heads, and all key heads. Rules decide the parts of all values, so the layouts of a
/// graph are found with the first rules; then, if there are such nodes, once more with the finer ones; and the cheaper
/// ones count.

/// The nodes that axes split unevenly along factors which the finer rule does not have.
std::set<const Node*> nodes_for_finer_rules(const Layout& layout, const Decisions& decisions, const Hints& hints);

/// The work of the busiest rank, in floating-point operations: its share of every node, the bytes that it receives, and
/// the number of layout changes.
double busiest_work(const Graph& graph, const Layout& layout, const Decisions& decisions, const Mesh& mesh,
                    const Hints& hints);

}  // namespace tessera::spmd
