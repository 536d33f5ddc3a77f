#pragma once

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// The constant result of a node whose operands are constants: scalars, or lists of at most ops::kMaxContent elements.
/// The node is a Cast or CastLike, arithmetic on floats, or joins or reshapes floats; models compute sizes this way.
/// (Lists of integers have content, which ops infer.) Null for other nodes.
Value* fold_short_lists(Graph& graph, const Node& node);

}  // namespace tessera::rewrite
