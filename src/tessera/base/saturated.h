#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tessera {

/// Floats go to integers by truncation; what lies beyond the integer's range goes to its nearest end, NaN to zero.
template <typename To = int64_t, typename From>
To saturated(From value) {
  using Limits = std::numeric_limits<To>;
  // The greatest integer may not be a float; the power of two above it is.
  const From beyond = std::ldexp(From(1), Limits::digits);
  const From least = std::is_signed_v<To> ? -beyond : From(0);
  if (value >= beyond) return Limits::max();
  if (value <= least) return Limits::min();
  return value == value ? static_cast<To>(value) : To(0);
}

}  // namespace tessera
