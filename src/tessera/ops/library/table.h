#pragma once

#include <vector>

#include "tessera/ir/expr.h"

namespace tessera::ops {

/// The element of a table at a symbolic index that is known to be inside the table. The table must not be empty.
///
/// If the elements follow one formula, returns that formula: 0, q + min(1, r), 2*q + min(2, r), … at i gives
/// i*q + min(i, r). Else returns a sum of the changes from step to step: 0, 5, 10, 14 at i gives 5*i - max(0, i - 2).
Expr element_at(const std::vector<Expr>& table, const Expr& index);

}  // namespace tessera::ops
