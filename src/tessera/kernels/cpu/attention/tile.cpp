#include "tessera/kernels/cpu/attention/tile.h"

#include <array>
#include <limits>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/elementwise/vector_math.h"

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

TESSERA_MULTIVERSION bool is_finite(const float* values, int64_t stride, int64_t count, int64_t width) {
  float sum = 0;  // NaN as soon as infinity or NaN is among the values
  for (int64_t j = 0; j < count; ++j) {
#pragma omp simd reduction(+ : sum)
    for (int64_t d = 0; d < width; ++d) sum += values[j * stride + d] * 0;
  }
  return sum == 0;
}

TESSERA_MULTIVERSION void raise_most(const float* __restrict scores, int64_t count, int64_t lanes,
                                     float* __restrict most) {
  for (int64_t j = 0; j < count; ++j) {
#pragma omp simd
    for (int64_t i = 0; i < lanes; ++i) most[i] = scores[j * lanes + i] > most[i] ? scores[j * lanes + i] : most[i];
  }
}

TESSERA_MULTIVERSION void weights_of(float* __restrict scores, int64_t count, int64_t lanes,
                                     const float* __restrict most, float* __restrict sums) {
  for (int64_t j = 0; j < count; ++j) {
#pragma omp simd
    for (int64_t i = 0; i < lanes; ++i) {
      const float shift = most[i] == minus_infinity ? 0.0f : most[i];
      const float weight = vector_math::exp(scores[j * lanes + i] - shift);
      scores[j * lanes + i] = weight;
      sums[i] += weight;
    }
  }
}

TESSERA_MULTIVERSION void score_gradients(float* __restrict weights, float* __restrict products, int64_t count,
                                          int64_t lanes, const float* __restrict sums, const float* __restrict row,
                                          float scale) {
  float inverse[attention_lanes];
#pragma omp simd
  for (int64_t i = 0; i < lanes; ++i) inverse[i] = sums[i] == 0 ? 0.0f : 1.0f / sums[i];
  for (int64_t j = 0; j < count; ++j) {
#pragma omp simd
    for (int64_t i = 0; i < lanes; ++i) {
      const float probability = weights[j * lanes + i] * inverse[i];
      weights[j * lanes + i] = probability;
      products[j * lanes + i] = probability * (products[j * lanes + i] - row[i]) * scale;
    }
  }
}

TESSERA_MULTIVERSION void softcap_gradient(float* __restrict products, const float* __restrict capped, int64_t count,
                                           float cap) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float share = capped[i] / cap;
    products[i] *= 1 - share * share;
  }
}

// Factors with which a product is added to what is there.
constexpr auto ones = [] {
  std::array<float, attention_lanes> factors{};
  factors.fill(1);
  return factors;
}();
static_assert(attention_keys <= attention_lanes);

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

bool attention_is_finite(const float* values, int64_t stride, int64_t count, int64_t width) {
  return is_finite(values, stride, count, width);
}

void attention_most(const float* scores, int64_t count, int64_t lanes, float* most) {
  raise_most(scores, count, lanes, most);
}

void attention_weights(float* scores, int64_t count, int64_t lanes, const float* most, float* sums) {
  weights_of(scores, count, lanes, most, sums);
}

void attention_score_gradients(float* weights, float* products, int64_t count, int64_t lanes, const float* sums,
                               const float* row, float scale) {
  score_gradients(weights, products, count, lanes, sums, row, scale);
}

void attention_softcap_gradient(float* products, const float* capped, int64_t count, float cap) {
  softcap_gradient(products, capped, count, cap);
}

void attention_add_outer(const float* weights, int64_t count, int64_t lanes, int64_t rows, const float* right,
                         int64_t width, float* result, int64_t result_stride) {
  product({weights, lanes, 1}, right, width, rows, result, result_stride, count, width, ones.data());
}

void attention_add(const float* weights, int64_t count, int64_t lanes, int64_t rows, const float* values,
                   int64_t stride, int64_t width, float* result) {
  product({weights, 1, lanes}, values, stride, count, result, width, rows, width, ones.data());
}

}  // namespace tessera::kernels
