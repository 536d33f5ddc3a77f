#pragma once

#include <optional>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::ops {

/// A number that shape computation knows: numerator / denominator, which is at least 1.
struct Ratio {
  Expr numerator;
  Expr denominator = 1;
  /// Whether floating-point elements hold it to the last digit. Where they do not, what rounds it to an integer is
  /// still right (a quotient of integers below 2^24 never reaches the next one), further arithmetic is not.
  bool exact = true;

  bool is_integer() const { return denominator.is(1); }
};

/// The elements of a value of rank 0 or 1, in integers or floats of 32 or 64 bits, where they follow from extents:
/// what exporters compute on Shape in floating point.
///
///     Mul(Cast(Shape(x)), 0.5)  with x of shape [height, width]  →  height/2, width/2
///     Floor of that             →  floordiv(height, 2), floordiv(width, 2)
///
/// Extents are taken to be below 2^24, which float32 holds to the last digit. Nullopt where something else is among
/// what they are computed from, states included.
std::optional<std::vector<Ratio>> ratios_of(const Value* value);

/// A ratio rounded towards zero, as Cast to an integer does; nullopt where its sign is not known.
std::optional<Expr> truncated(const Ratio& ratio);

}  // namespace tessera::ops
