#pragma once

#include <algorithm>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/elementwise/via_float32.h"
#include "tessera/kernels/cpu/library/dispatch.h"

/// The inner loops of element-wise kernels: one operand list each, over `n` consecutive elements. An operand is either
/// consecutive too or `fixed` (one element for all). A result may lie where an operand lies. 16-bit floats pass through
/// a small float32 buffer, so that only the float32 loops exist per operator.
namespace tessera::kernels {

constexpr int64_t narrow_chunk = 512;

template <typename A, typename R, typename Op>
TESSERA_MULTIVERSION static void unary_loop(const A* a, R* out, int64_t n, Op op) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = op(a[i]);
}

template <typename A, typename B, typename R, typename Op>
TESSERA_MULTIVERSION static void binary_loop(const A* a, bool a_fixed, const B* b, bool b_fixed, R* out, int64_t n,
                                             Op op) {
  if (a_fixed) {
    const A left = a[0];
    if (b_fixed) {
      const R value = op(left, b[0]);
      std::fill(out, out + n, value);
      return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = op(left, b[i]);
  } else if (b_fixed) {
    const B right = b[0];
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = op(a[i], right);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = op(a[i], b[i]);
  }
}

/// out[i] = op(a[i]). R is A, or bool for predicates.
template <typename A, typename R, typename Op>
void map_unary(const A* a, R* out, int64_t n, Op op) {
  if constexpr (is_narrow_float<A>) {
    alignas(64) float wide[narrow_chunk];
    for (int64_t at = 0; at < n; at += narrow_chunk) {
      const int64_t count = std::min(narrow_chunk, n - at);
      widen_row(a + at, wide, count);
      if constexpr (std::is_same_v<A, R>) {
        unary_loop(wide, wide, count, op);
        narrow_row(wide, out + at, count);
      } else {
        unary_loop(wide, out + at, count, op);
      }
    }
  } else {
    unary_loop(a, out, n, op);
  }
}

/// out[i] = op(a[i], b[i]). R is A, or bool for comparisons.
template <typename A, typename R, typename Op>
void map_binary(const A* a, bool a_fixed, const A* b, bool b_fixed, R* out, int64_t n, Op op) {
  if constexpr (is_narrow_float<A>) {
    alignas(64) float left[narrow_chunk], right[narrow_chunk];
    for (int64_t at = 0; at < n; at += narrow_chunk) {
      const int64_t count = std::min(narrow_chunk, n - at);
      widen_row(a_fixed ? a : a + at, left, a_fixed ? 1 : count);
      widen_row(b_fixed ? b : b + at, right, b_fixed ? 1 : count);
      if constexpr (std::is_same_v<A, R>) {
        alignas(64) float result[narrow_chunk];
        binary_loop(left, a_fixed, right, b_fixed, result, count, op);
        narrow_row(result, out + at, count);
      } else {
        binary_loop(left, a_fixed, right, b_fixed, out + at, count, op);
      }
    }
  } else {
    binary_loop(a, a_fixed, b, b_fixed, out, n, op);
  }
}

}  // namespace tessera::kernels
