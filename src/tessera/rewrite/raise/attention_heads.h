#pragma once

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// An Attention as one that takes queries, keys and values as [batch, heads, positions, width], and gives its result
/// so, where they are [batch, positions, heads·width]; the node itself if they are not.
Node* with_heads_apart(Graph& graph, Node* attention);

}  // namespace tessera::rewrite
