#pragma once

#include <cstdint>

#include "tessera/ir/expr.h"

namespace tessera {

/// Whether the expressions are equal for all values of their symbols, as far as it can be told: the same polynomial, or
/// equal in all of some samples, of sizes up to a million.
bool always_equal(const Expr& a, const Expr& b);

/// The same of two extents at all sizes at which both can be extents: elsewhere one is negative, and nothing runs.
bool equal_as_extents(const Expr& a, const Expr& b);

/// Whether the expression is below zero for no values of its symbols, as far as it can be told: by its bounds, or by
/// the same samples.
bool never_negative(const Expr& expr);

/// 64 bits by which equal expressions over sizes are found among many: the same for all that are equal, however they
/// are written, and as far as it can be told (by samples of up to a million) for no others. Indices along axes are to
/// be bound before, since a sample tells little about each of them.
uint64_t fingerprint(const Expr& expr);

}  // namespace tessera
