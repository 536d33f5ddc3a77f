#pragma once

#include <string>

#include "tessera/ir/graph.h"

namespace tessera::generate {

/// A node that combines elements along a dimension.
struct TokenMeeting {
  const Node* node = nullptr;
  const Value* value = nullptr;  ///< the operand
  size_t dim = 0;
};

/// The first node besides Attention through which a dimension whose extent has the symbol does not pass, as the
/// operators' sharding rules say; none (node is null) if there is no such. TensorScatter, which writes into caches,
/// counts as none.
TokenMeeting where_tokens_meet(const Graph& graph, const std::string& symbol);

bool mentions(const Expr& expression, const std::string& symbol);

}  // namespace tessera::generate
