#pragma once

#include <cstdint>

#include "tessera/ir/expr.h"

namespace tessera {

/// Whether the expressions are equal for all values of their symbols, as far as it can be told: the same polynomial, or
/// equal in all of a dozen samples.
bool always_equal(const Expr& a, const Expr& b);

/// 64 bits by which equal expressions are found among many: the same for all that are equal, however they are written,
/// and as far as it can be told (by values at 40 samples) for no others.
uint64_t fingerprint(const Expr& expr);

}  // namespace tessera
