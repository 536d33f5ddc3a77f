#pragma once

#include <vector>

#include "tessera/ir/expr.h"

namespace tessera::ops {

/// The element of a table at an index that is no number yet, but known to be inside of it. The table has an element.
///
/// If the elements follow one formula, that formula: of 0, q + min(1, r), 2*q + min(2, r), … at i it is
/// i*q + min(i, r). Else a sum of what changes from step to step: of 0, 5, 10, 14 at i it is 5*i - max(0, i - 2).
Expr element_at(const std::vector<Expr>& table, const Expr& index);

}  // namespace tessera::ops
