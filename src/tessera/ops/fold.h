#pragma once

#include <optional>
#include <vector>

#include "tessera/error.h"
#include "tessera/ir/graph.h"

namespace tessera::ops {

/// The result of compute(); nullopt if an expression in it overflows. Expressions refuse to overflow, but elements wrap
/// around, so such a computation is left to the kernel.
template <typename Compute>
auto unless_overflowing(const Compute& compute) -> decltype(compute()) {
  try {
    return compute();
  } catch (const Error& overflow) {
    if (overflow.kind() != ErrorKind::user) throw;
    return std::nullopt;
  }
}

/// Whether integers of that type hold these elements. Only int64, int32 and bool are followed; others would wrap
/// around. Expressions stand for extents, which int32 holds.
bool all_held(const std::vector<Expr>& elements, DType dtype);

/// The content of an elementwise node's result of that type and shape, computed from its operands' contents with
/// broadcasting. This turns exporters' arithmetic on Shape into expressions. Comparisons that bounds do not decide
/// become expressions with values 0 and 1. Nullopt if a content is unknown, the result is not a small int32, int64 or
/// bool tensor, an element overflows, or the operator has no integer meaning.
std::optional<std::vector<Expr>> folded_content(const Node& node, DType dtype, const Shape& shape);

/// The same for Cast and CastLike: from integers to integers or bool, and from floats that follow from extents and
/// constants (ratio.h) to integers, truncated.
std::optional<std::vector<Expr>> cast_content(const Value& from, DType to);

}  // namespace tessera::ops
