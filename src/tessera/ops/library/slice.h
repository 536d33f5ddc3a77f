#pragma once

#include "tessera/ir/expr.h"

namespace tessera::ops {

/// The elements that Slice takes of one dimension: `count` of them from `start`, `step` apart.
struct SliceRange {
  Expr start = 0;
  Expr count = 0;
  int64_t step = 1;

  /// Whether the slice is the whole dimension, in order.
  bool covers(const Expr& extent) const { return step == 1 && start.is(0) && count == extent; }
};

/// Resolves start:end:step for a dimension of that extent: negative starts and ends count from its end, and the range
/// is clipped to the dimension. Expressions of unknown sign count from the start. `step` is not 0.
///
///     2:5 of 8 → 3 from 2;  -2:9223372036854775807 of s → 2 from s - 2;  0:s of 512 → min(512, s) from 0
SliceRange slice_range(const Expr& start, const Expr& end, int64_t step, const Expr& extent);

}  // namespace tessera::ops
