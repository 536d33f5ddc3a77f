#pragma once

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// Converts an Attention with queries, keys and values [batch, positions, heads·width] to one with operands and result
/// [batch, heads, positions, width]; returns the node itself if it has that form.
Node* with_heads_apart(Graph& graph, Node* attention);

}  // namespace tessera::rewrite
