#pragma once

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// The constant that a node makes from constants of one element: a Cast or CastLike, or float arithmetic on operands of
/// one shape. Null if it is no such node.
Value* fold_scalar(Graph& graph, const Node& node);

}  // namespace tessera::rewrite
