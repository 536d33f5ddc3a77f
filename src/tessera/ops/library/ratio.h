#pragma once

#include <optional>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::ops {

/// A number known to shape computation: numerator / denominator; the denominator is at least 1.
struct Ratio {
  Expr numerator;
  Expr denominator = 1;
  /// Whether floating-point elements hold it exactly. If not, rounding it to an integer is still right (a quotient of
  /// integers below 2^24 never reaches the next integer), but further arithmetic is not.
  bool exact = true;

  bool is_integer() const { return denominator.is(1); }
};

/// The elements of a value of rank 0 or 1, in integers or floats of 32 or 64 bits, if they follow from extents.
/// Exporters compute such values on Shape in floating point:
///
///     Mul(Cast(Shape(x)), 0.5)  with x of shape [height, width]  →  height/2, width/2
///     Floor of that             →  floordiv(height, 2), floordiv(width, 2)
///
/// Assumes extents below 2^24, which float32 holds exactly. Nullopt if the elements depend on anything but extents and
/// constants, for example on states.
std::optional<std::vector<Ratio>> ratios_of(const Value* value);

/// A ratio rounded towards zero, as Cast to an integer does; nullopt if its sign is unknown.
std::optional<Expr> truncated(const Ratio& ratio);

}  // namespace tessera::ops
