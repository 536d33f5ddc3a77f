#pragma once

#include <cstdint>

#include "tessera/ir/expr.h"

namespace tessera {

/// Whether the expressions are equal for all values of their symbols, as far as can be told: they are the same
/// polynomial, or are equal in all of some samples with sizes up to a million.
bool always_equal(const Expr& a, const Expr& b);

/// The same for two extents, at all sizes at which neither is negative; at other sizes nothing runs.
bool equal_as_extents(const Expr& a, const Expr& b);

/// Whether the expression is never below zero, as far as can be told from its bounds or from the same samples.
bool never_negative(const Expr& expr);

/// A 64-bit hash with which to find equal expressions over sizes among many. Equal expressions have equal fingerprints,
/// however they are written; unequal ones differ, as far as samples with sizes up to a million can tell. Bind axis
/// indices before, since a sample tells little about each of them.
uint64_t fingerprint(const Expr& expr);

}  // namespace tessera
