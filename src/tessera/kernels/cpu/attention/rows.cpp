#include "tessera/kernels/cpu/attention/rows.h"

#include <array>
#include <cstring>
#include <limits>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/elementwise/vector_math.h"

namespace tessera::kernels {
namespace {

constexpr float no_score = -std::numeric_limits<float>::infinity();
constexpr int64_t lanes = attention_row_vector;
constexpr int64_t bytes_ahead = 2048;  // hardware prefetching ends at a page's end, where keys may go on

/// Sixteen floats at any address.
typedef float Row __attribute__((vector_size(64), aligned(4), may_alias));

[[gnu::always_inline]] inline const Row& row_at(const float* data) {
  return *reinterpret_cast<const Row*>(data);
}
[[gnu::always_inline]] inline Row& row_at(float* data) {
  return *reinterpret_cast<Row*>(data);
}

typedef uint32_t WideBits __attribute__((vector_size(64)));
typedef uint16_t NarrowBits __attribute__((vector_size(32), aligned(2), may_alias));

/// Sixteen elements as floats; for each type, what its conversion does.
[[gnu::always_inline]] inline void load(const float* data, Row& row) {
  row = row_at(data);
}
[[gnu::always_inline]] inline void load(const BFloat16* data, Row& row) {
  row = (Row)(__builtin_convertvector(*reinterpret_cast<const NarrowBits*>(data), WideBits) << 16);
}
[[gnu::always_inline]] inline void load(const Float16* data, Row& row) {
  const WideBits bits = __builtin_convertvector(*reinterpret_cast<const NarrowBits*>(data), WideBits);
  const WideBits magnitude = bits & 0x7fffU;
  const WideBits special = (WideBits)(magnitude >= 0x7c00U) & 0x7f800000U;
  row = (Row)((WideBits)((Row)(magnitude << 13) * 0x1p112F) | special | ((bits & 0x8000U) << 16));
}

// The sums of 16 vectors, as a vector, in four steps: each adds halves (quarters, …) of two vectors side by side, so
// that half as many vectors hold as many sums each. Vector i of the first step ends in the lane whose number has the
// bits of i in reverse.
constexpr std::array<int, 16> reversed = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};

[[gnu::always_inline]] inline void add_halves(const Row& a, const Row& b, Row& sum) {
  sum = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
        __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
}
[[gnu::always_inline]] inline void add_quarters(const Row& a, const Row& b, Row& sum) {
  sum = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
        __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
[[gnu::always_inline]] inline void add_pairs(const Row& a, const Row& b, Row& sum) {
  sum = __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
        __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
}
[[gnu::always_inline]] inline void add_singles(const Row& a, const Row& b, Row& sum) {
  sum = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
        __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

[[gnu::always_inline]] inline void sum_lanes(Row* parts, Row& sums) {
  for (int i = 0; i < 8; ++i) add_halves(parts[i], parts[i + 8], parts[i]);
  for (int i = 0; i < 4; ++i) add_quarters(parts[i], parts[i + 4], parts[i]);
  for (int i = 0; i < 2; ++i) add_pairs(parts[i], parts[i + 2], parts[i]);
  add_singles(parts[0], parts[1], sums);
}

/// The scores of M queries and up to 16 keys.
template <int M, typename T>
[[gnu::always_inline]] inline void score_keys(const T* keys, int64_t stride, int64_t count, int64_t width,
                                              const float* queries, float* scores, int64_t score_stride) {
  const int64_t whole = width / lanes * lanes, padded = (width + lanes - 1) / lanes * lanes;
  Row parts[M][lanes] = {};
  for (int64_t j = 0; j < count; ++j) {
    const T* key = keys + j * stride;
    Row part, sums[M] = {};
    for (int64_t d = 0; d < whole; d += lanes) {
      __builtin_prefetch(reinterpret_cast<const char*>(key + d) + bytes_ahead);
      load(key + d, part);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) sums[i] += part * row_at(queries + i * padded + d);
    }
    if (whole < width) {
      T rest[lanes] = {};
      std::memcpy(rest, key + whole, sizeof(T) * static_cast<size_t>(width - whole));
      load(rest, part);
      for (int i = 0; i < M; ++i) sums[i] += part * row_at(queries + i * padded + whole);
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) parts[i][reversed[j]] = sums[i];
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i) sum_lanes(parts[i], row_at(scores + i * score_stride));
}

template <typename T>
[[gnu::always_inline]] inline void score_rows(const T* keys, int64_t key_stride, int64_t count, int64_t width,
                                              const float* queries, int64_t rows, float* scores, int64_t score_stride) {
  const int64_t padded = (width + lanes - 1) / lanes * lanes;
  for (int64_t j = 0; j < count; j += lanes) {
    const T* key = keys + j * key_stride;
    const int64_t some = count - j < lanes ? count - j : lanes;
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4)
      score_keys<4>(key, key_stride, some, width, queries + i * padded, scores + i * score_stride + j, score_stride);
    for (; i < rows; ++i)
      score_keys<1>(key, key_stride, some, width, queries + i * padded, scores + i * score_stride + j, score_stride);
  }
}

TESSERA_MULTIVERSION void row_scores(const float* keys, int64_t key_stride, int64_t count, int64_t width,
                                     const float* queries, int64_t rows, float* scores, int64_t score_stride) {
  score_rows(keys, key_stride, count, width, queries, rows, scores, score_stride);
}
TESSERA_MULTIVERSION void row_scores(const BFloat16* keys, int64_t key_stride, int64_t count, int64_t width,
                                     const float* queries, int64_t rows, float* scores, int64_t score_stride) {
  score_rows(keys, key_stride, count, width, queries, rows, scores, score_stride);
}
TESSERA_MULTIVERSION void row_scores(const Float16* keys, int64_t key_stride, int64_t count, int64_t width,
                                     const float* queries, int64_t rows, float* scores, int64_t score_stride) {
  score_rows(keys, key_stride, count, width, queries, rows, scores, score_stride);
}

TESSERA_MULTIVERSION float row_weights(float* scores, int64_t count, float& most) {
  const int64_t padded = (count + lanes - 1) / lanes * lanes;
  for (int64_t j = count; j < padded; ++j) scores[j] = no_score;
  float largest[lanes], sums[lanes] = {};
  for (int64_t i = 0; i < lanes; ++i) largest[i] = no_score;
  for (int64_t j = 0; j < padded; j += lanes) {
#pragma omp simd
    for (int64_t i = 0; i < lanes; ++i) largest[i] = scores[j + i] > largest[i] ? scores[j + i] : largest[i];
  }
  most = largest[0];
  for (int64_t i = 1; i < lanes; ++i) most = largest[i] > most ? largest[i] : most;
  const float shift = most == no_score ? 0.0f : most;
  for (int64_t j = 0; j < padded; j += lanes) {
#pragma omp simd
    for (int64_t i = 0; i < lanes; ++i) {
      const float weight = vector_math::exp(scores[j + i] - shift);
      scores[j + i] = weight;
      sums[i] += weight;
    }
  }
  for (int64_t half = lanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

/// V vectors of sums for M rows of weights.
template <int M, int V, typename T>
[[gnu::always_inline]] inline void add_values(const float* weights, int64_t weight_stride, int64_t count,
                                              const T* values, int64_t value_stride, float* sums, int64_t width) {
  Row total[M][V];
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) total[i][v] = row_at(sums + i * width + v * lanes);
  for (int64_t j = 0; j < count; ++j) {
    const T* value = values + j * value_stride;
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      __builtin_prefetch(reinterpret_cast<const char*>(value + v * lanes) + bytes_ahead);
      Row part;
      load(value + v * lanes, part);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) total[i][v] += weights[i * weight_stride + j] * part;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) row_at(sums + i * width + v * lanes) = total[i][v];
}

template <int V, typename T>
[[gnu::always_inline]] inline void add_all_values(const float* weights, int64_t weight_stride, int64_t count,
                                                  int64_t rows, const T* values, int64_t value_stride, int64_t width,
                                                  float* sums) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4)
    add_values<4, V>(weights + i * weight_stride, weight_stride, count, values, value_stride, sums + i * width, width);
  for (; i < rows; ++i)
    add_values<1, V>(weights + i * weight_stride, weight_stride, count, values, value_stride, sums + i * width, width);
}

template <typename T>
[[gnu::always_inline]] inline void sum_rows(const float* weights, int64_t weight_stride, int64_t count, int64_t rows,
                                            const T* values, int64_t value_stride, int64_t width, float* sums) {
  int64_t d = 0;
  for (; d + 4 * lanes <= width; d += 4 * lanes)
    add_all_values<4>(weights, weight_stride, count, rows, values + d, value_stride, width, sums + d);
  for (; d < width; d += lanes)
    add_all_values<1>(weights, weight_stride, count, rows, values + d, value_stride, width, sums + d);
}

TESSERA_MULTIVERSION void row_sums(const float* weights, int64_t weight_stride, int64_t count, int64_t rows,
                                   const float* values, int64_t value_stride, int64_t width, float* sums) {
  sum_rows(weights, weight_stride, count, rows, values, value_stride, width, sums);
}
TESSERA_MULTIVERSION void row_sums(const float* weights, int64_t weight_stride, int64_t count, int64_t rows,
                                   const BFloat16* values, int64_t value_stride, int64_t width, float* sums) {
  sum_rows(weights, weight_stride, count, rows, values, value_stride, width, sums);
}
TESSERA_MULTIVERSION void row_sums(const float* weights, int64_t weight_stride, int64_t count, int64_t rows,
                                   const Float16* values, int64_t value_stride, int64_t width, float* sums) {
  sum_rows(weights, weight_stride, count, rows, values, value_stride, width, sums);
}

}  // namespace

template <typename T>
void attention_row_scores(const T* keys, int64_t key_stride, int64_t count, int64_t width, const float* queries,
                          int64_t rows, float* scores, int64_t score_stride) {
  row_scores(keys, key_stride, count, width, queries, rows, scores, score_stride);
}

float attention_row_weights(float* scores, int64_t count, float& most) {
  return row_weights(scores, count, most);
}

float attention_row_exp(float x) {
  return vector_math::exp(x);
}

template <typename T>
void attention_row_sums(const float* weights, int64_t weight_stride, int64_t count, int64_t rows, const T* values,
                        int64_t value_stride, int64_t width, float* sums) {
  row_sums(weights, weight_stride, count, rows, values, value_stride, width, sums);
}

#define TESSERA_INSTANTIATE(T)                                                                                     \
  template void attention_row_scores(const T*, int64_t, int64_t, int64_t, const float*, int64_t, float*, int64_t); \
  template void attention_row_sums(const float*, int64_t, int64_t, int64_t, const T*, int64_t, int64_t, float*);
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(BFloat16)
TESSERA_INSTANTIATE(Float16)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::kernels
