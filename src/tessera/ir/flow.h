#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

/// Control flow in one graph. Every pass after folding sees the nodes of a branch or body among all others; these nodes
/// of domain tessera.flow say where it begins and ends (docs/control-flow.md):
///
///   iteration = Loop (trips?, condition?, around?)        a counter, from 0
///   c = Carry (initial, iteration)                        what an iteration gets from the one before
///   x = Item (sequence, iteration)                        sequence[iteration]; with reverse = 1, from the end
///   held, done = Next (value, iteration, c)               what c is in the next iteration
///   again = Again (iteration, condition?, done…)          the iteration's end
///   y = Last (c, again)                                   what c is after the loop
///   z = Stack (item, again)                               z[iteration] = item; with reverse = 1, from the end
///
///   b = Branch <taken> (condition, around?)               runs if the condition is `taken`
///   x = Bring (outer, b)
///   j = Join (then's b, else's b)
///   y = Choose (then's value, else's value, j)
///
/// `around` is the iteration or branch that encloses the construct. A node is in a region if it depends on the region's
/// first node; other nodes are computed once, before it. A value leaves a region only through Last, Stack and Choose.
namespace tessera::flow {

inline constexpr std::string_view kDomain = "tessera.flow";

inline bool is(const Node& node, std::string_view type) {
  return node.domain == kDomain && node.op_type == type;
}

/// A body of a loop, or a branch.
struct FlowRegion {
  const Node* begin = nullptr;  ///< Loop or Branch
  const Node* end = nullptr;    ///< Again, of a loop
  int parent = -1;              ///< the region around it; -1: none
  int depth = 0;

  bool is_loop() const { return begin->op_type == "Loop"; }
};

/// The regions of a graph, outer ones first.
struct Flow {
  std::vector<FlowRegion> regions;
  std::map<const Node*, int> region_of;  ///< the innermost one of a node; nodes outside are not listed

  bool empty() const { return regions.empty(); }
  int of(const Node* node) const;
  /// Whether region `inner` is `outer`, or in it; everything is in region -1.
  bool is_within(int inner, int outer) const;
};

/// Throws a user error, stage "flow", that names the node if a value leaves its region in another way, or a construct
/// lacks a part.
Flow flow_of(const Graph& graph);

bool has_flow(const Graph& graph);

/// How often a run executes a node: the product of the trip counts of the loops around it. Loops whose trip count is
/// not known before the run count once.
Expr runs_of(const Flow& flow, const Node* node);

/// Puts the nodes in an order where each region's are together: its first node, Carries, the others. Otherwise keeps
/// the present order.
void arrange_regions(Graph& graph);

}  // namespace tessera::flow
