#pragma once

#include <optional>
#include <vector>

#include "tessera/error.h"
#include "tessera/ir/graph.h"

namespace tessera::ops {

/// What compute() gives; nullopt where an expression in it overflows: expressions refuse to, where elements wrap
/// around, so that what overflows is left to the kernel.
template <typename Compute>
auto unless_overflowing(const Compute& compute) -> decltype(compute()) {
  try {
    return compute();
  } catch (const Error& overflow) {
    if (overflow.kind() != ErrorKind::user) throw;
    return std::nullopt;
  }
}

/// Whether integers of that type hold these elements: int64, int32 and bool are followed, others only wrap around.
/// Expressions stand for extents, which int32 holds.
bool all_held(const std::vector<Expr>& elements, DType dtype);

/// The content of an elementwise node's result of that type and shape, computed from its operands' contents with
/// broadcasting. This is how exporters' arithmetic on Shape becomes expressions. Comparisons that bounds do not decide
/// become expressions with values 0 and 1. Nullopt where a content is not known, the result is no small int32, int64 or
/// bool tensor, an element overflows, or the operator has no integer meaning.
std::optional<std::vector<Expr>> folded_content(const Node& node, DType dtype, const Shape& shape);

/// The same for Cast and CastLike: integers among each other and to bool, and floats that follow from extents and
/// constants (ratio.h) to integers, truncated.
std::optional<std::vector<Expr>> cast_content(const Value& from, DType to);

}  // namespace tessera::ops
