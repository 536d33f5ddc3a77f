#pragma once

#include <map>
#include <set>
#include <vector>

#include "tessera/base/shared_vector.h"
#include "tessera/cost/prices.h"
#include "tessera/spmd/layout/propagate.h"

namespace tessera::spmd {

/// An operand that only the first rank of each group along some axes adds to a sum.
struct HeldTerm {
  int operand = 0;
  std::vector<AxisRef> along;
};

/// How one node computes: what its operands must look like and what its results then are.
struct NodeDecision {
  SharedVector<std::vector<AxisRef>> axes;  ///< per subfactor of its NodeLayout
  SharedVector<Sharding> operands;          ///< per operand; empty dims for absent ones and expressions
  SharedVector<Sharding> results;           ///< as produced, partial axes included
  /// Operands that are added to sums that are partial over more axes: the first rank of each group along these axes
  /// adds them, the others add zeros.
  std::vector<HeldTerm> held;
};

struct Decisions {
  std::vector<NodeDecision> nodes;           ///< in graph order
  std::map<const Value*, Sharding> sources;  ///< storage of inputs, states and constants
  std::map<const Value*, Sharding> outputs;  ///< of graph outputs, never partial
  /// States with a storage layout of their own, and values computed from such states alone, element by element. Each
  /// use fetches them anew, so that no gathered form outlives its use.
  ValueSet fetched;
  /// Further layouts of results that only move their operand's elements (Transpose, Reshape), for uses that share a
  /// layout change of the operand (share.h).
  std::map<const Value*, std::vector<NodeDecision>> repeated;
  int64_t computed = 0;  ///< decisions of nodes, in all passes, that did not repeat one of a node like it (repeats.h)
};

/// Chooses every node's compute sharding from the propagated layouts.
///
/// Where the layouts around a node agree (an axis runs along one subfactor only), that is the choice. Where they do
/// not, the combinations are compared by the bytes that operands and results would move or, if a machine is named, by
/// the time that this and computing take; annotations of results are followed, and annotated states are not gathered,
/// wherever possible. The first pass assumes that neighbours want the layouts that propagation found. Later passes know
/// what neighbours wanted in the pass before, and that a layout of an operand that others want too costs nothing more.
/// The cheapest pass wins. Then movements share layout changes (share.h).
///
/// Partial results stay partial through operators that allow it and do not enlarge what must be reduced. They are
/// reduced once, where a consumer needs it. Terms that are partial over the same axis are added before their sum is
/// scattered.
///
/// Sources are stored in the layout that all their uses have in common, so that each use is a free slice; annotated
/// sources are stored as annotated.
///
/// States with a storage layout are stored in it; the gathers of their uses count as costs like all others. The nodes
/// of `scattered` (scattered_sums()) keep no partial sums: their operands are scattered first.
///
/// An annotation with a partial axis claims that its value is computed as a partial sum; a user error says so if it is
/// not.
Decisions decide(const Graph& graph, const Layout& layout, const Mesh& mesh, const Hints& hints,
                 const std::vector<Annotation>& annotations = {}, const Storage& storage = {},
                 const cost::Prices* prices = nullptr, const std::set<const Node*>& scattered = {});

class Costs;

/// The communication of one rank, on a machine also its computation.
struct Traffic {
  double cost = 0;      ///< bytes received, or seconds (costs.h)
  int collectives = 0;  ///< that change layouts; not those within local forms
};
Traffic traffic_of(const Graph& graph, const Layout& layout, const Decisions& decisions, const Costs& costs);

}  // namespace tessera::spmd
