#pragma once

#include <set>
#include <vector>

#include "tessera/spmd/layout/propagate.h"

namespace tessera::spmd {

/// An operand that only the first rank of each group along some axes adds to a sum.
struct HeldTerm {
  int operand = 0;
  std::vector<AxisRef> along;
};

/// How one node computes: what its operands must look like and what its results then are.
struct NodeDecision {
  std::vector<std::vector<AxisRef>> axes;  ///< per subfactor of its NodeLayout
  std::vector<Sharding> operands;          ///< per operand; empty dims for absent ones and expressions
  std::vector<Sharding> results;           ///< as produced, partial axes included
  /// Operands that are added to sums which are partial over more axes: only the first rank of each group along the
  /// others adds them, the rest add zeros.
  std::vector<HeldTerm> held;
};

struct Decisions {
  std::vector<NodeDecision> nodes;           ///< in graph order
  std::map<const Value*, Sharding> sources;  ///< storage of inputs, states and constants
  std::map<const Value*, Sharding> outputs;  ///< of graph outputs, never partial
  /// States with a storage layout of their own, and what is made of such states alone, element by element: each use
  /// takes it from there anew, so that no gathered form outlives its use.
  std::set<const Value*> fetched;
  /// Further forms of results that only move their operand's elements, for uses that share what the operand becomes
  /// (share.h).
  std::map<const Value*, std::vector<NodeDecision>> repeated;
};

/// Chooses every node's compute sharding from the propagated layouts.
///
/// Where the layouts around a node agree (an axis runs along one subfactor only), that is the choice. Where they do
/// not, the combinations are compared by the bytes that operands and results would move; annotated results are obeyed
/// and annotated states are not gathered while another way exists. A first pass takes for what neighbours want the
/// layouts that propagation found; further passes know what they wanted in the pass before, and that a layout which
/// others want of an operand costs nothing more. The cheapest pass counts. Then movements share layout changes
/// (share.h).
///
/// Partial results stay partial through operators that allow it and do not enlarge what must be reduced; they are
/// reduced where a consumer needs it, once. Terms that are partial over an axis add up before the sum is scattered.
///
/// Sources are stored in what all their uses have in common, so that each use is a free slice; annotated ones as
/// ordered.
///
/// States with a storage layout are stored so; what their uses pay for a gather is compared with all else.
///
/// An annotation with a partial axis is a claim about how its value comes about; a user error says so if it does not.
Decisions decide(const Graph& graph, const Layout& layout, const Mesh& mesh, const Hints& hints,
                 const std::vector<Annotation>& annotations = {}, const Storage& storage = {});

/// What one rank receives.
struct Traffic {
  double bytes = 0;     ///< symbols as hinted
  int collectives = 0;  ///< that change layouts; those within local forms are left out
};
Traffic traffic_of(const Graph& graph, const Layout& layout, const Decisions& decisions, const Mesh& mesh,
                   const Hints& hints);

}  // namespace tessera::spmd
