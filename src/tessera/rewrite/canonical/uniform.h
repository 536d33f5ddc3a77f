#pragma once

#include <optional>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// The one number that all elements of an integer value equal, if that follows from how it is made: from constants, by
/// moves of elements, casts, sums, differences and products, and by sums along dimensions. So the sum of a mask of ones
/// along `past + sequence` is `past + sequence`. Nullopt if it is unknown. The types of all values that it depends on
/// must be known.
std::optional<Expr> uniform_element(const Value* value);

}  // namespace tessera::rewrite
