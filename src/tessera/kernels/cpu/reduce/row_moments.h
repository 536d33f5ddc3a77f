#pragma once

#include <cmath>

#include "tessera/kernels/cpu/reduce/rows.h"

namespace tessera::kernels {

/// Mean of a row and the mean of its squared differences from it, in two passes.
template <typename C>
struct Moments {
  C mean = 0, variance = 0;
};

template <typename C>
[[gnu::always_inline]] inline Moments<C> moments_of(const C* x, int64_t count) {
  const C mean = lane_sum<C>(count, [x](int64_t i) { return x[i]; }) / static_cast<C>(count);
  const C squares = lane_sum<C>(count, [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  return {mean, squares / static_cast<C>(count)};
}

}  // namespace tessera::kernels
