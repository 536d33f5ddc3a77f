#pragma once

#include "tessera/ir/expr.h"

namespace tessera {

/// Whether the expressions are equal for all values of their symbols, as far as it can be told: the same polynomial, or
/// equal in all of a dozen samples.
bool always_equal(const Expr& a, const Expr& b);

}  // namespace tessera
