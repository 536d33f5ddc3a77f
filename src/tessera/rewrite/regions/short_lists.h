#pragma once

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// The constant that a node makes from constants, each a scalar or a list of at most ops::kMaxContent elements: a Cast
/// or CastLike, arithmetic on floats, or floats that are put together or change their shape. Models compute sizes so,
/// by way of floats. (Lists of integers have content, which ops infer.) Null if it is no such node.
Value* fold_short_lists(Graph& graph, const Node& node);

}  // namespace tessera::rewrite
