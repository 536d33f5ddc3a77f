#pragma once

#include "tessera/kernels/kernel.h"

/// Matrices of 4- and 8-bit codes, with a scale and perhaps a zero point for each block of rows of a column:
/// b[l, j] = (code[l, j] - zero[l / block, j]) · scale[l / block, j].
namespace tessera::kernels {

/// How such a matrix b [k, n] is packed, the same on every machine: in strips of 64 columns; a strip holds its blocks
/// one after the other, each as
///
///     codes    [block / p][64 columns][p rows]
///     scales   [64] float32
///     zeros    [64] int8 or float32, if there are any
///
/// p codes, 8 of 4 bits or 4 of 8 bits, fill 32 bits, and the first takes the lowest. Codes and zero points are less
/// half the codes' range (8 or 128), so that codes are signed.
struct BlockWeight {
  enum class Zeros : uint8_t { none, integers, floats };

  int64_t k = 0, n = 0, block = 0;
  int bits = 4;
  Zeros zeros = Zeros::none;

  static constexpr int64_t strip = 64;  ///< columns

  int64_t blocks() const { return (k + block - 1) / block; }
  int64_t strips() const { return (n + strip - 1) / strip; }
  int64_t group() const { return 32 / bits; }  ///< rows whose codes share 32 bits
  int64_t code_bytes() const { return block * strip * bits / 8; }
  int64_t block_bytes() const {
    return code_bytes() + strip * (4 + (zeros == Zeros::none ? 0 : zeros == Zeros::integers ? 1 : 4));
  }
  int64_t bytes() const { return strips() * blocks() * block_bytes(); }
};

/// The matrix before it is packed: codes are contiguous, without gaps between bytes.
struct BlockSource {
  const void* codes = nullptr;
  const void* scales = nullptr;
  const void* zeros = nullptr;
  DType scale_type = DType::float32;
  DType zero_type = DType::uint8;  ///< float, or an integer: then they are codes of the weight's bits
  bool has_sign = false;           ///< of codes and integer zero points
  /// From a row or column to the next; scales and zeros have a row per block.
  int64_t code_row = 1, code_column = 1, scale_row = 1, scale_column = 1, zero_row = 1, zero_column = 1;
};

void pack_blocks(const BlockWeight& weight, const BlockSource& source, std::byte* packed, int threads);

}  // namespace tessera::kernels
