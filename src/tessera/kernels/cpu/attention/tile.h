#pragma once

#include <cstdint>

/// Attention on tiles in float32. A block of queries goes through the keys tile by tile; scores are kept transposed,
/// [keys, lanes], one lane per query, so that a query's softmax uses one lane of vectors and no query's result depends
/// on its neighbours. For queries q, a tile of keys k and values v:
///
///     scores  = k · q                         attention_scores       [keys, width] · [width, lanes]
///     carry   : most', sums' of each lane     attention_softmax      scores become exp(score - most')
///     result  = result · exp(most - most') + scoresᵀ · v             attention_accumulate
///
/// and in the end result / sums is the attention (Milakov and Gimelshein 2018; Dao et al. 2022). The gradient keeps all
/// of a block's scores, so that their maximum is known before they become weights:
///
///     most                                   attention_most
///     scores  = exp(score - most), and sums   attention_weights
///     products = v · g                        attention_scores
///     scores, products = p, p∘(products - row)·scale   attention_score_gradients, with p = scores / sums
///     dv, dk  += scores · g, products · q     attention_add_outer    [keys, lanes] · [lanes, width]
///     dq      += productsᵀ · k                attention_add
namespace tessera::kernels {

constexpr int64_t attention_lanes = 64;   ///< queries of a block at most
constexpr int64_t attention_keys = 64;    ///< keys of a tile at most
constexpr int64_t attention_vector = 16;  ///< lanes, and the width of padded values, are multiples of this

/// `keys` [count, width] with rows `stride` apart; `queries` [width, lanes]; `scores` [count, lanes].
void attention_scores(const float* keys, int64_t stride, int64_t count, int64_t width, const float* queries,
                      int64_t lanes, float* scores);

/// score ← cap · tanh(score / cap)
void attention_softcap(float* scores, int64_t count, float cap);

/// Sets the scores of keys outside [low, high) of their lane, counted from the tile's first key, to -infinity.
void attention_hide(float* scores, int64_t count, int64_t lanes, const int32_t* low, const int32_t* high);

/// Carries each lane's maximum and sum over a tile of scores, which become weights; `corrections` are the factors for
/// the previous sums. A score of -infinity gets weight 0; a lane whose maximum still is -infinity stays empty.
void attention_softmax(float* scores, int64_t count, int64_t lanes, float* most, float* sums, float* corrections);

/// `weights` [count, lanes], `values` [count, width] with rows `stride` apart, width a multiple of attention_vector;
/// `result` [rows, width] for the first `rows` lanes.
void attention_accumulate(const float* weights, int64_t count, int64_t lanes, int64_t rows, const float* values,
                          int64_t stride, int64_t width, const float* corrections, float* result);

/// Whether all values are finite: `values` [count, width] with rows `stride` apart.
bool attention_is_finite(const float* values, int64_t stride, int64_t count, int64_t width);

/// Raises each lane's maximum to that of a tile of scores.
void attention_most(const float* scores, int64_t count, int64_t lanes, float* most);

/// Turns a tile's scores into weights, exp(score - most), and adds these to their lane's sum. Lanes whose maximum is
/// -infinity get zeros.
void attention_weights(float* scores, int64_t count, int64_t lanes, const float* most, float* sums);

/// Turns weights into probabilities p = weight / sum (0 for a lane whose sum is 0), and the products of values with
/// the result's gradient into the gradient of unscaled scores, p·(product - row)·scale.
void attention_score_gradients(float* weights, float* products, int64_t count, int64_t lanes, const float* sums,
                               const float* row, float scale);

/// products ← products · (1 - (capped / cap)²), the derivative of attention_softcap where it gave `capped`.
void attention_softcap_gradient(float* products, const float* capped, int64_t count, float cap);

/// result [count, width], rows `result_stride` apart, += weights [count, lanes] · rows [rows, width] that are `width`
/// apart; width a multiple of attention_vector.
void attention_add_outer(const float* weights, int64_t count, int64_t lanes, int64_t rows, const float* right,
                         int64_t width, float* result, int64_t result_stride);

/// result [rows, width] += weightsᵀ · values, as attention_accumulate without corrections.
void attention_add(const float* weights, int64_t count, int64_t lanes, int64_t rows, const float* values,
                   int64_t stride, int64_t width, float* result);

}  // namespace tessera::kernels
