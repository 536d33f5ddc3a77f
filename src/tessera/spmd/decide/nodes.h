#pragma once

#include <optional>

#include "tessera/spmd/decide/costs.h"
#include "tessera/spmd/decide/repeats.h"

namespace tessera::spmd {

/// A pass over all nodes.
struct Pass {
  Decisions decisions;
  bool compared = false;  ///< the neighbours of some node disagree, so another pass may decide differently
  int disobeyed = 0;      ///< annotated results that are computed in another layout
  int gathered = 0;       ///< annotated states that are not used in their stored layout
};

/// An earlier pass, and what its uses want.
struct Earlier {
  const Decisions& decisions;
  const Wishes& wishes;
};

/// Decides node by node, in graph order. Without an earlier pass, a node takes the layouts that propagation found for
/// what its neighbours want; with one, it takes what they wanted there, and pays nothing for a layout that others want
/// of an operand as well. What `repeats` has from earlier nodes and passes is not decided again.
Pass decide_nodes(const Graph& graph, const Layout& layout, const Costs& costs, const Storage& storage,
                  const std::set<const Node*>& scattered, Repeats& repeats,
                  const std::optional<Earlier>& earlier = std::nullopt);

/// A way to compute a node.
struct Alternative {
  std::vector<std::vector<AxisRef>> axes;   ///< per subfactor of its NodeLayout
  std::vector<Sharding> operands, results;  ///< as in NodeDecision
  Price price;
  bool chosen = false;
};

/// The ways to compute a node that decisions chose from, with their prices if all other nodes are as decided; the one
/// that was chosen first, then by price. It may not have the lowest price, where a later choice changed that of others.
/// None for the nodes of a loop that follow a carried value.
std::vector<Alternative> alternatives_of(const Node* node, const Graph& graph, const Layout& layout,
                                         const Decisions& decisions, const Costs& costs, const Storage& storage);

/// What a rank holds of operands and results counts as this many bytes moved for each byte: it breaks ties.
inline constexpr double kTie = 1e-3;

}  // namespace tessera::spmd
