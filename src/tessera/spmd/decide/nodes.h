#pragma once

#include "tessera/spmd/decide/costs.h"
#include "tessera/spmd/decide/decide.h"
#include "tessera/spmd/decide/wishes.h"

namespace tessera::spmd {

/// A pass over all nodes.
struct Pass {
  Decisions decisions;
  bool compared = false;  ///< the neighbours of some node disagree, so another pass may decide differently
  int disobeyed = 0;      ///< annotated results that are computed in another layout
  int gathered = 0;       ///< annotated states that are not used in their stored layout
};

/// Decides node by node, in graph order. Without an earlier pass, a node takes the layouts that propagation found for
/// what its neighbours want; with one, it takes what they wanted there, and pays nothing for a layout that others want
/// of an operand as well.
Pass decide_nodes(const Graph& graph, const Layout& layout, const Costs& costs, const Storage& storage,
                  const Decisions* before = nullptr);

/// What a rank holds of operands and results counts as this many bytes moved for each byte: it breaks ties.
inline constexpr double kTie = 1e-3;

}  // namespace tessera::spmd
