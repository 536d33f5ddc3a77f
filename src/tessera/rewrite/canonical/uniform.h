#pragma once

#include <optional>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// The number that all elements of an integer value equal, if it follows from how the value is computed: from
/// constants, by moves of elements, casts, sums, differences and products, and by sums along dimensions. So the sum of
/// a mask of ones along `past + sequence` is `past + sequence`. Nullopt if it is unknown. The types of all values that
/// it depends on must be known.
std::optional<Expr> uniform_element(const Value* value);

}  // namespace tessera::rewrite
