#pragma once

#include "tessera/kernels/cpu/quantized/block_weight.h"

/// Products of a few rows by codes in blocks, in integers: instructions for dot products take 64 codes at once, where
/// floats would take 16, one operation after the other. A block of a row x becomes whole multiples of a unit, and these
/// three digits each,
///
///     x[l] ≈ unit · (65536·d₂[l] + 256·d₁[l] + d₀[l]),   -128 ≤ d ≤ 127,
///
/// with the unit a power of two, from 2^-22 to 2^-21 of the block's largest |x| (and no less than float32's smallest
/// normal number), so that an x is off by at most 2^-22 of that largest one; small elements beside large ones lose
/// digits. Sums of digits by codes are exact; a block's sum, which is made of three of them, is float32.
namespace tessera::kernels {

/// A row of digits: for each block its head, then its digits as the codes of the weight lie: of 4 bits, for 8 rows of
/// b, [digit 0, 1, 2, none][rows 0 2 4 6, rows 1 3 5 7]; of 8 bits, for 4 rows of b, [digit 0, 1, 2, none][rows 0 1 2
/// 3].
struct DigitHead {
  float unit = 0;
  int32_t sums[3] = {};  ///< of each digit
};

/// Bytes of a row, which begins at a multiple of 64 bytes.
int64_t digit_row_bytes(const BlockWeight& weight);

/// The two functions of this CPU; null if it has no instructions for dot products of bytes.
struct DigitProduct {
  /// Writes a row, all blocks long, as digits. False if an element is not finite: then digits cannot say what it is.
  bool (*split)(const BlockWeight& weight, const float* row, std::byte* digits) = nullptr;
  /// As sum_block_strip(), of rows `digit_row_bytes` apart.
  void (*sum)(const BlockWeight& weight, int64_t rows, const std::byte* digits, const std::byte* strip,
              float* sums) = nullptr;
};
DigitProduct digit_product(const BlockWeight& weight);

}  // namespace tessera::kernels
