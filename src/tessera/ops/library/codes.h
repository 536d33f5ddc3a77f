#pragma once

#include "tessera/ops/library/node_builder.h"

/// What operators ask of 8-bit codes, and do with them.
namespace tessera::ops {

/// Throws a user error unless operand `index` is uint8 or int8.
void require_bytes(const Node& node, size_t index);

/// Throws a user error unless operand `index` is absent, or is zero points of operand `of`, in its type: one number, or
/// a list of `along`.
void require_zero_point(const Node& node, size_t index, size_t of, const Expr& along);

/// Bytes of two 4-bit codes each as twice as many bytes along the last dimension, each with one; the lower half first.
Value* halves_of_bytes(NodeBuilder& b, Value* bytes);

/// DynamicQuantizeLinear in other operators: x [...] as uint8 codes of its shape, their scale in x's type, and their
/// zero point. The scale is (most - least) / 255, and 1 if both are equal; the zero point is round(-least / scale), cut
/// to uint8. `greatest` and `smallest` are scalars: those of all elements, which need not include 0.
std::vector<Value*> codes_by_range(NodeBuilder& b, Value* x, Value* greatest, Value* smallest);

/// Whether operand `index` is a list of zero points, which is split with its dimension.
bool is_list_of_zero_points(const Node& node, size_t index);

}  // namespace tessera::ops
