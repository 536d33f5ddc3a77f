#pragma once

#include "tessera/kernels/cpu/quantized/block_weight.h"

namespace tessera::kernels {

/// The most rows of one call of sum_block_strip().
constexpr int64_t most_block_rows = 4;

/// Sums of `rows` rows of a (`a_stride` apart, all blocks long) by a packed strip: sums[row][64 columns]. `a_sums`: the
/// sums of each row's blocks, [rows][blocks], read only if there are zero points. A column's sum runs along the rows of
/// b, block by block, wherever the column is.
void sum_block_strip(const BlockWeight& weight, int64_t rows, const float* a, int64_t a_stride, const float* a_sums,
                     const std::byte* strip, float* sums);

/// Blocks first … first + count - 1 of a packed strip as float32, [count · block][64].
void unpack_block_strip(const BlockWeight& weight, const std::byte* strip, int64_t first, int64_t count, float* out);

}  // namespace tessera::kernels
