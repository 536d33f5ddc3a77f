#pragma once

#include <map>
#include <string>

#include "tessera/ir/einsum.h"
#include "tessera/ir/graph.h"

namespace tessera::ops {

/// An Einsum's equation, which is its sharding rule. The extents of its labels are those of the operands, broadcast.
struct Equation : EinsumEquation {
  std::map<std::string, Expr> extents;
};

/// The equation of an Einsum whose operands' shapes are known; a user error naming the node if they do not fit it.
Equation read_equation(const Node& node);

}  // namespace tessera::ops
