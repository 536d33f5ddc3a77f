#include "tessera/kernels/cpu/attention_tile.h"

#include <limits>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/vector_math.h"

namespace tessera::kernels {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Sixteen floats at any address; the compiler splits them into the machine's registers.
typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));

/// A matrix read as a[i, k], with strides in elements.
struct Left {
  const float* data;
  int64_t row, column;
};

/// c[M rows, V vectors] = c · factors[row] + Σk a[row, k] · b[k, vectors]; without factors, c starts at zero.
template <int M, int V>
[[gnu::always_inline]] inline void product_block(Left a, const float* b, int64_t b_stride, int64_t depth, float* c,
                                                 int64_t c_stride, const float* factors) {
  Vector sums[M][V];
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const Vector start = {};
      sums[i][v] =
          factors ? *reinterpret_cast<const Vector*>(c + i * c_stride + v * attention_vector) * factors[i] : start;
    }
  for (int64_t k = 0; k < depth; ++k) {
    const Vector* right = reinterpret_cast<const Vector*>(b + k * b_stride);
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      const float left = a.data[i * a.row + k * a.column];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[i][v] += left * right[v];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) *reinterpret_cast<Vector*>(c + i * c_stride + v * attention_vector) = sums[i][v];
}

template <int V>
[[gnu::always_inline]] inline void product_columns(Left a, const float* b, int64_t b_stride, int64_t depth, float* c,
                                                   int64_t c_stride, int64_t rows, const float* factors) {
  int64_t i = 0;
  auto at = [&](int64_t row) { return Left{a.data + row * a.row, a.row, a.column}; };
  for (; i + 4 <= rows; i += 4)
    product_block<4, V>(at(i), b, b_stride, depth, c + i * c_stride, c_stride, factors ? factors + i : nullptr);
  for (; i < rows; ++i)
    product_block<1, V>(at(i), b, b_stride, depth, c + i * c_stride, c_stride, factors ? factors + i : nullptr);
}

TESSERA_MULTIVERSION void product(Left a, const float* b, int64_t b_stride, int64_t depth, float* c, int64_t c_stride,
                                  int64_t rows, int64_t columns, const float* factors) {
  int64_t j = 0;
  for (; j + 2 * attention_vector <= columns; j += 2 * attention_vector)
    product_columns<2>(a, b + j, b_stride, depth, c + j, c_stride, rows, factors);
  for (; j < columns; j += attention_vector)
    product_columns<1>(a, b + j, b_stride, depth, c + j, c_stride, rows, factors);
}

TESSERA_MULTIVERSION void softcap(float* scores, int64_t count, float cap) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) scores[i] = cap * vector_math::tanh(scores[i] / cap);
}

TESSERA_MULTIVERSION void softmax(float* __restrict scores, int64_t count, int64_t lanes, float* __restrict most,
                                  float* __restrict sums, float* __restrict corrections) {
  float shift[attention_lanes];
#pragma omp simd
  for (int64_t i = 0; i < lanes; ++i) shift[i] = most[i];
  for (int64_t j = 0; j < count; ++j) {
#pragma omp simd
    for (int64_t i = 0; i < lanes; ++i) shift[i] = scores[j * lanes + i] > shift[i] ? scores[j * lanes + i] : shift[i];
  }
#pragma omp simd
  for (int64_t i = 0; i < lanes; ++i) {
    const float before = most[i];
    most[i] = shift[i];
    shift[i] = shift[i] == minus_infinity ? 0.0f : shift[i];
    corrections[i] = vector_math::exp(before - shift[i]);  // 0 if nothing came before
    sums[i] *= corrections[i];
  }
  for (int64_t j = 0; j < count; ++j) {
#pragma omp simd
    for (int64_t i = 0; i < lanes; ++i) {
      const float weight = vector_math::exp(scores[j * lanes + i] - shift[i]);
      scores[j * lanes + i] = weight;
      sums[i] += weight;
    }
  }
}

TESSERA_MULTIVERSION void hide(float* __restrict scores, int64_t count, int64_t lanes, const int32_t* __restrict low,
                               const int32_t* __restrict high) {
  for (int32_t j = 0; j < count; ++j) {
#pragma omp simd
    for (int64_t i = 0; i < lanes; ++i)
      scores[j * lanes + i] = ((j >= low[i]) & (j < high[i])) ? scores[j * lanes + i] : minus_infinity;
  }
}

}  // namespace

void attention_scores(const float* keys, int64_t stride, int64_t count, int64_t width, const float* queries,
                      int64_t lanes, float* scores) {
  product({keys, stride, 1}, queries, lanes, width, scores, lanes, count, lanes, nullptr);
}

void attention_softcap(float* scores, int64_t count, float cap) {
  softcap(scores, count, cap);
}

void attention_softmax(float* scores, int64_t count, int64_t lanes, float* most, float* sums, float* corrections) {
  softmax(scores, count, lanes, most, sums, corrections);
}

void attention_accumulate(const float* weights, int64_t count, int64_t lanes, int64_t rows, const float* values,
                          int64_t stride, int64_t width, const float* corrections, float* result) {
  product({weights, 1, lanes}, values, stride, count, result, width, rows, width, corrections);
}

void attention_hide(float* scores, int64_t count, int64_t lanes, const int32_t* low, const int32_t* high) {
  hide(scores, count, lanes, low, high);
}

}  // namespace tessera::kernels
