#pragma once

#include <omp.h>

#include <algorithm>
#include <limits>

#include "tessera/base/checked.h"
#include "tessera/kernels/cpu/elementwise/via_float32.h"
#include "tessera/kernels/cpu/library/dispatch.h"

/// Visits rows of a tensor, one after the other in float32 (float64 for float64 tensors), held in cache: the common
/// part of softmax and the normalizations. A row's result does not depend on other rows or on its place.
namespace tessera::kernels {

/// Rows along one dimension (or several neighbouring ones): row (o, i) has the elements o·length·inner + l·inner + i.
struct Rows {
  int64_t outer = 1, length = 1, inner = 1;
  int threads = 1;

  int64_t count() const { return outer * inner; }
  int team() const { return team_for(count() * length, threads); }
};

/// The columns gathered at a time if rows are strided: a cache line of float32.
constexpr int64_t rows_together = 16;

template <typename In, typename Out>
constexpr bool rows_in_place = std::is_same_v<In, Compute<In>>&& std::is_same_v<Out, Compute<In>>;

/// Scratch bytes of for_rows<In, Out>.
template <typename In, typename Out>
size_t rows_scratch_bytes(const Rows& rows) {
  if (rows_in_place<In, Out> && rows.inner == 1) return 0;
  return checked_bytes(
      {sizeof(Compute<In>), std::min(rows.inner, rows_together), rows.length, std::max(rows.threads, 1)},
      "the rows of a normalization");
}

/// Calls visit(const Compute<In>* from, Compute<In>* to, row) for each row; `from` and `to` are contiguous and may be
/// the same memory, and the row's number is o·inner + i. x and y may be the same memory if In and Out are the same
/// type.
template <typename In, typename Out, typename Visit>
void for_rows(const Rows& rows, const In* x, Out* y, void* scratch, Visit visit) {
  using C = Compute<In>;
  const int64_t length = rows.length, inner = rows.inner;
  if constexpr (rows_in_place<In, Out>) {
    if (inner == 1) {
#pragma omp parallel for num_threads(rows.team()) schedule(static)
      for (int64_t row = 0; row < rows.outer; ++row) visit(x + row * length, y + row * length, row);
      return;
    }
  }
  const int64_t together = std::min(inner, rows_together);
  const int64_t blocks = together == 0 ? 0 : (inner + together - 1) / together;
#pragma omp parallel for num_threads(rows.team()) schedule(static)
  for (int64_t task = 0; task < rows.outer * blocks; ++task) {
    C* buffer = static_cast<C*>(scratch) + omp_get_thread_num() * together * length;
    const int64_t outer = task / blocks, first = task % blocks * together, width = std::min(together, inner - first);
    const In* from = x + outer * length * inner + first;
    Out* to = y + outer * length * inner + first;
    if constexpr (is_narrow_float<In> && std::is_same_v<In, Out>) {
      if (inner == 1) {
        widen_row(from, buffer, length);
        visit(buffer, buffer, outer);
        narrow_row(buffer, to, length);
        continue;
      }
    }
    for (int64_t l = 0; l < length; ++l)
      for (int64_t i = 0; i < width; ++i) buffer[i * length + l] = load(from[l * inner + i]);
    for (int64_t i = 0; i < width; ++i) visit(buffer + i * length, buffer + i * length, outer * inner + first + i);
    for (int64_t l = 0; l < length; ++l)
      for (int64_t i = 0; i < width; ++i) to[l * inner + i] = static_cast<Out>(buffer[i * length + l]);
  }
}

/// Σ term(i) for i in [0, count), in 32 sums of every 32nd element each, so that it vectorises in one fixed order.
template <typename C, typename Term>
[[gnu::always_inline]] inline C lane_sum(int64_t count, Term term) {
  constexpr int64_t lanes = 32;
  C sums[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < lanes; ++lane) sums[lane] += term(i + lane);
  }
  for (int64_t lane = 0; i + lane < count; ++lane) sums[lane] += term(i + lane);
  for (int64_t width = lanes / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0];
}

/// The largest element that is not NaN; -infinity if there is none.
template <typename C>
[[gnu::always_inline]] inline C lane_max(const C* row, int64_t count) {
  constexpr int64_t lanes = 32;
  C most[lanes];
  std::fill_n(most, lanes, -std::numeric_limits<C>::infinity());
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < lanes; ++lane) most[lane] = row[i + lane] > most[lane] ? row[i + lane] : most[lane];
  }
  for (int64_t lane = 0; i + lane < count; ++lane) most[lane] = row[i + lane] > most[lane] ? row[i + lane] : most[lane];
  return *std::max_element(most, most + lanes);
}

}  // namespace tessera::kernels
