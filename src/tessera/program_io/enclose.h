#pragma once

#include <functional>
#include <map>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/sharding.h"

namespace tessera::program_io {

/// What is needed to make Ifs on places. Values belong to the graph; the functions may append nodes at its end.
struct Enclosure {
  std::map<const Node*, std::vector<PlacedAxis>> places;  ///< where nodes run; a node without one runs everywhere
  /// A bool scalar: whether this rank is at the place.
  std::function<Value*(const std::vector<PlacedAxis>&)> condition;
  /// The extents of a value, as a tensor of rank 1.
  std::function<Value*(const Value&)> extents;
};

/// Puts the nodes that run on only some ranks into Ifs: one for every maximal sequence of nodes of one place.
/// Independent nodes between them move before the If. On other ranks, results are zeros of the same shapes.
///
/// Example: h = MatMul (x, v) at(pp=0) becomes h = If (is_pp_0) <then: MatMul (x, v), else: ConstantOfShape (shape)>.
void enclose_placed(Graph& graph, const Enclosure& enclosure);

}  // namespace tessera::program_io
