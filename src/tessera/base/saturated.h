#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tessera {

/// Converts a float to an integer by truncation; a value beyond the integer's range becomes its nearest end, NaN zero.
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
