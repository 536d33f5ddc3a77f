#pragma once

#include "tessera/ir/graph.h"
#include "tessera/ops/rule.h"

/// What all products of matrices with numpy's broadcasting have in common.
namespace tessera::ops {

/// Shape of operand 0 times operand 1. A user error naming the node if they cannot be multiplied.
Shape matmul_shape(const Node& node);
/// "b m k, k n -> b m n | k: sum" for operands 0 and 1; later operands have no factors yet, and none may be partial.
Rule matmul_factors(const Node& node);
Expr matmul_flops(const Node& node);

}  // namespace tessera::ops
