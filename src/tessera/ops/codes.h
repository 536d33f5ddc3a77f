#pragma once

#include "tessera/ir/graph.h"

/// What products of 8-bit integers ask of their operands.
namespace tessera::ops {

/// Throws a user error unless operand `index` is uint8 or int8.
void require_bytes(const Node& node, size_t index);

/// Throws a user error unless operand `index` is absent, or is zero points of operand `of`, in its type: one number, or
/// a list of `along`.
void require_zero_point(const Node& node, size_t index, size_t of, const Expr& along);

/// Whether operand `index` is a list of zero points, which is split with its dimension.
bool is_list_of_zero_points(const Node& node, size_t index);

}  // namespace tessera::ops
