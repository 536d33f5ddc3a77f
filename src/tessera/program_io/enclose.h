#pragma once

#include <functional>
#include <map>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/sharding.h"

namespace tessera::program_io {

/// The ingredients of Ifs on places. Values are of the graph; the functions may append them at its end.
struct Enclosure {
  std::map<const Node*, std::vector<PlacedAxis>> places;  ///< where nodes run; a node without one runs everywhere
  /// Whether this rank is there: a bool scalar.
  std::function<Value*(const std::vector<PlacedAxis>&)> condition;
  /// The extents of a value, rank 1.
  std::function<Value*(const Value&)> extents;
};

/// Puts the nodes that run on some ranks only into Ifs: one for every maximal run of nodes of one place. Independent
/// nodes between them move before the If. Elsewhere the results are zeros of the same shapes.
///
/// Example: h = MatMul (x, v) at(pp=0) becomes h = If (is_pp_0) <then: MatMul (x, v), else: ConstantOfShape (shape)>.
void enclose_placed(Graph& graph, const Enclosure& enclosure);

}  // namespace tessera::program_io
