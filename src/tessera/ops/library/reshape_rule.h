#pragma once

#include "tessera/ops/rule.h"

namespace tessera::ops {

/// The rule of a reshape: the same elements in the same order, in another shape. The algorithm walks both shapes from
/// their first dimensions, and cuts off the factors that they have in common:
///
///     [b, s, 192] → [b, s, 6, 32]      "a b (c d) -> a b c d"
///     [b, s, 96] → [b*s, 96]           "a b c -> (a b) c"
///     [2, 6, 4] → [2, 8, 3]            "a 1 1 -> a 1 1": 6·4 and 8·3 share no cut, so they stay whole
///     [6, 4, 5] → [6, 2, 10]           "a (b c) d -> a b (c d)"
///
/// Invariant: an element's index has the same row-major digits under the operand's factors as under the result's.
/// Symbolic extents are cut if they divide for all values of their symbols. If one dimension remains on each side, the
/// two are one factor, since the element counts are equal. Dimensions of extent 1 have no factor.
Rule reshape_rule(const Shape& from, const Shape& to);

}  // namespace tessera::ops
