#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tessera/kernels/cpu/elementwise/loops.h"
#include "tessera/kernels/cpu/elementwise/vector_math.h"
#include "tessera/kernels/cpu/library/parallel.h"

/// How a reduction maps an element and combines two partial results, and the inner loops. Only the reduced dimensions
/// determine the order in which elements combine, never the result's position, the number of threads or the vector
/// width.
namespace tessera::kernels {

/// Sums are taken in blocks of at most this many elements, and the blocks' sums pairwise, to bound rounding.
constexpr int64_t reduce_block = 1024;
constexpr int64_t reduce_lanes = 16;

struct SumOf {
  template <typename C>
  static C identity() {
    return C(0);
  }
  template <typename C>
  static C map(C x, C) {
    return x;
  }
  template <typename C>
  static C combine(C a, C b) {
    if constexpr (std::is_integral_v<C>)
      return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));  // wraps around
    else
      return a + b;
  }
};
struct SumOfSquares : SumOf {
  template <typename C>
  static C map(C x, C) {
    if constexpr (std::is_integral_v<C>)
      return static_cast<C>(static_cast<uint64_t>(x) * static_cast<uint64_t>(x));
    else
      return x * x;
  }
};
struct SumOfMagnitudes : SumOf {
  template <typename C>
  static C map(C x, C) {
    if constexpr (std::is_unsigned_v<C>)
      return x;
    else if constexpr (std::is_integral_v<C>)
      return x < 0 ? static_cast<C>(uint64_t{0} - static_cast<uint64_t>(x)) : x;
    else
      return std::fabs(x);
  }
};
/// The sum of exp(x - shift), the shift being the greatest element.
struct SumOfExponentials : SumOf {
  template <typename C>
  static C map(C x, C shift) {
    return vector_math::exp(x - shift);
  }
};
struct ProductOf {
  template <typename C>
  static C identity() {
    return C(1);
  }
  template <typename C>
  static C map(C x, C) {
    return x;
  }
  template <typename C>
  static C combine(C a, C b) {
    if constexpr (std::is_integral_v<C>)
      return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
};
struct GreatestOf {  // NaN wins
  template <typename C>
  static C identity() {
    return std::numeric_limits<C>::has_infinity ? -std::numeric_limits<C>::infinity()
                                                : std::numeric_limits<C>::lowest();
  }
  template <typename C>
  static C map(C x, C) {
    return x;
  }
  template <typename C>
  static C combine(C a, C b) {
    return ((a > b) | (a != a)) ? a : b;
  }
};
struct LeastOf {
  template <typename C>
  static C identity() {
    return std::numeric_limits<C>::has_infinity ? std::numeric_limits<C>::infinity() : std::numeric_limits<C>::max();
  }
  template <typename C>
  static C map(C x, C) {
    return x;
  }
  template <typename C>
  static C combine(C a, C b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};

/// Reduces up to reduce_block consecutive elements: element i goes to lane i mod 16, then the lanes combine pairwise.
template <typename Op, typename A, typename C>
TESSERA_MULTIVERSION static C reduce_lanes_of(const A* x, int64_t n, C shift) {
  C lanes[reduce_lanes];
  for (C& lane : lanes) lane = Op::template identity<C>();
  const int64_t whole = n / reduce_lanes * reduce_lanes;
  for (int64_t i = 0; i < whole; i += reduce_lanes)
#pragma omp simd
    for (int64_t l = 0; l < reduce_lanes; ++l)
      lanes[l] = Op::combine(lanes[l], Op::map(static_cast<C>(x[i + l]), shift));
  for (int64_t i = whole; i < n; ++i)
    lanes[i - whole] = Op::combine(lanes[i - whole], Op::map(static_cast<C>(x[i]), shift));
  for (int64_t half = reduce_lanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half; ++l) lanes[l] = Op::combine(lanes[l], lanes[l + half]);
  return lanes[0];
}

/// Elements of the first half of a row of more than a block, whose halves combine.
constexpr int64_t half_of_row(int64_t n) {
  return (n / reduce_block + 1) / 2 * reduce_block;
}

/// Reduces a row of consecutive elements: its blocks combine pairwise.
template <typename Op, typename T, typename C>
C reduce_row_of(const T* x, int64_t n, C shift) {
  if (n > reduce_block) {
    const int64_t half = half_of_row(n);
    const C left = reduce_row_of<Op, T, C>(x, half, shift);
    return Op::combine(left, reduce_row_of<Op, T, C>(x + half, n - half, shift));
  }
  if constexpr (is_narrow_float<T>) {
    alignas(64) float wide[reduce_block];
    widen_row(x, wide, n);
    return reduce_lanes_of<Op, float, C>(wide, n, shift);
  } else {
    return reduce_lanes_of<Op, T, C>(x, n, shift);
  }
}

/// total = combine(total, reduction of a row of consecutive elements).
template <typename Op, typename T, typename C>
void reduce_row(const T* x, int64_t n, C shift, C& total) {
  if (n > 0) total = Op::combine(total, reduce_row_of<Op, T, C>(x, n, shift));
}

/// The same for a row of at least kLongRow elements, by several threads: the first levels of the pairwise combining
/// are taken apart, so that the order is the same.
constexpr int64_t kLongRow = 256 * reduce_block;
template <typename Op, typename T, typename C>
void reduce_long_row(const T* x, int64_t n, C shift, int threads, C& total) {
  constexpr size_t parts = 16;
  std::array<int64_t, parts> begin{}, size{n};
  for (size_t count = 1; count < parts; count *= 2)
    for (size_t p = count; p-- > 0;) {
      const int64_t first = begin[p], half = half_of_row(size[p]);
      begin[2 * p + 1] = first + half;
      size[2 * p + 1] = size[p] - half;
      begin[2 * p] = first;
      size[2 * p] = half;
    }
  std::array<C, parts> totals;
  for_ranges(parts, n, threads, [&](int64_t from, int64_t to) {
    for (int64_t p = from; p < to; ++p) totals[p] = reduce_row_of<Op, T, C>(x + begin[p], size[p], shift);
  });
  for (size_t count = parts / 2; count > 0; count /= 2)
    for (size_t p = 0; p < count; ++p) totals[p] = Op::combine(totals[2 * p], totals[2 * p + 1]);
  total = Op::combine(total, totals[0]);
}

/// sums[i] = combine(sums[i], map(x[i], shifts[i])): one more element for each of n neighbouring results.
template <typename Op, typename A, typename C>
TESSERA_MULTIVERSION static void accumulate(const A* x, const C* shifts, C* sums, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sums[i] = Op::combine(sums[i], Op::map(static_cast<C>(x[i]), shifts[i]));
}

}  // namespace tessera::kernels
