#pragma once

#include <vector>

#include "tessera/ir/graph.h"

/// Divides values into unequal pieces, together with the values that they are computed from or used for.
namespace tessera::rewrite {

/// A dimension of a value, cut into pieces of these extents.
struct Cut {
  size_t dim = 0;
  std::vector<int64_t> sizes;

  bool operator==(const Cut&) const = default;
};

/// Divides `whole` as `cut` says. Nodes that compute it or use it are computed in pieces, too, as far as operators'
/// rules pass the dimension on: Splits and Slices into exactly these pieces vanish, and so do Concats of them. Sums
/// over the dimension become sums of pieces' sums, and outputs of the graph are joined again. States become one for
/// each piece (`w.0`, `w.1`, …), each with its origin and its own next value. Example, cut into 4, 2 and 2:
///
///     q, k, v = Split (MatMul (x, w [3, 8]))          q = MatMul (x, w.0 [3, 4]), k = MatMul (x, w.1 [3, 2]), …
///     dqkv = Concat (dq, dk, dv)                 ─▶
///     dx = MatMul (dqkv, Transpose (w))               dx = MatMul (dq, Transpose (w.0)) + MatMul (dk, …) + …
///     next w = w - MatMul (Transpose (x), dqkv)       next w.0 = w.0 - MatMul (Transpose (x), dq), …
///
/// Returns false, and changes nothing, if a node needs one of these values whole, or if a state or an input among them
/// is an output of the graph.
bool divide(Graph& graph, Value* whole, const Cut& cut);

}  // namespace tessera::rewrite
