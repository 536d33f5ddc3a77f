#pragma once

#include <cstdint>

#include "tessera/base/float16.h"

/// Attention of a few queries, as a step of decoding has them: a query's scores, weights and sums are rows, whose
/// vectors run along keys and along the width. Keys and values are read once, in place. (The tiles of
/// attention_tile.h have a lane for each query, most of which would be empty.) Keys and values are float32, BFloat16 or
/// Float16; all other rows are float32.
namespace tessera::kernels {

constexpr int64_t attention_row_vector = 16;  ///< rows have space for multiples of so many floats

/// scores[i, j] = queries[i] · keys[j], for `keys` [count, width] with rows `key_stride` apart, and `queries` [rows,
/// width], whose rows are width rounded up apart, zeros behind the width. Rows of scores are `score_stride` apart; up
/// to the next multiple of 16 behind `count`, they are written, too.
template <typename T>
void attention_row_scores(const T* keys, int64_t key_stride, int64_t count, int64_t width, const float* queries,
                          int64_t rows, float* scores, int64_t score_stride);

/// Turns `count` scores into weights exp(score - most), where `most` is the largest of them; returns their sum. If all
/// are -infinity, so is `most`, and weights are zeros. Behind them, up to the next multiple of 16, are zeros then.
float attention_row_weights(float* scores, int64_t count, float& most);

/// sums[i] += Σj weights[i, j] · values[j], for `values` [count, width] with rows `value_stride` apart, width a
/// multiple of 16, `weights` with rows `weight_stride` apart, and `sums` [rows, width].
template <typename T>
void attention_row_sums(const float* weights, int64_t weight_stride, int64_t count, int64_t rows, const T* values,
                        int64_t value_stride, int64_t width, float* sums);

/// exp(x), with the bits that weights have.
float attention_row_exp(float x);

}  // namespace tessera::kernels
