#pragma once

#include <cstdint>
#include <limits>

namespace tessera {

/// A whole number that was computed in floating point, as an int64: the nearest one where it is larger than any, 0 of
/// NaN.
inline int64_t saturated(double number) {
  constexpr double kBeyond = 0x1p63;
  if (number != number) return 0;
  if (number >= kBeyond) return std::numeric_limits<int64_t>::max();
  return number <= -kBeyond ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(number);
}

}  // namespace tessera
