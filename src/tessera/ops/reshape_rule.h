#pragma once

#include "tessera/ops/rule.h"

namespace tessera::ops {

/// The rule of giving a tensor another shape with the same elements in the same order. Both shapes are walked from
/// their first dimensions, cutting off what they have in common:
///
///     [b, s, 192] → [b, s, 6, 32]      "a b (c d) -> a b c d"
///     [b, s, 96] → [b*s, 96]           "a b c -> (a b) c"
///     [2, 6, 4] → [2, 8, 3]            "a 1 1 -> a 1 1": 6·4 and 8·3 share no cut, so they stay whole
///     [6, 4, 5] → [6, 2, 10]           "a (b c) d -> a b (c d)"
///
/// Invariant: the row-major digits of an element's index under the operand's factors are those under the result's.
/// Symbolic extents are cut where they divide for all values of their symbols. One dimension left over on each side is
/// one factor, since the element counts are equal. Dimensions of extent 1 have no factor.
Rule reshape_rule(const Shape& from, const Shape& to);

}  // namespace tessera::ops
