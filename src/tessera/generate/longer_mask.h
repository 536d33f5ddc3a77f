#pragma once

#include <string>

#include "tessera/ir/graph.h"

namespace tessera::generate {

/// The mask [..., 1, symbol] over `keys` keys instead, made before `before`: as ALiBi's, which adds a multiple of each
/// key's place. Null unless what it says of a key depends on the key's place and on parameters alone, so that it says
/// the same however many keys follow.
Value* longer_mask(Graph& graph, Value* mask, const std::string& symbol, int64_t keys, const Node* before);

}  // namespace tessera::generate
