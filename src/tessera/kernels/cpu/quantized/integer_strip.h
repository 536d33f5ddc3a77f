#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/kernels/cpu/quantized/sum_of_codes.h"

namespace tessera::kernels {

/// A strip of 64 columns of an IntegerWeight: groups of four rows, [k / 4][64 columns][4 rows], of which four vectors
/// of 64 bytes hold 16 columns each.
///
/// A vector is wide if two neighbours in it, times 255, do not fit in 16 bits together: then their products are not
/// added there. `wide` lists the groups of wide vectors: how many there are of each of the four, and then these, one
/// list after the other, in ascending order. The first count is -1 if they are too many to be listed.
struct IntegerStrip {
  const int8_t* codes;
  const int32_t* wide;
};

/// Lists a strip's wide vectors, of so many groups, `most` at most.
void list_wide(const int8_t* codes, int64_t groups, int64_t most, int32_t* wide);

/// The most rows of one call of an IntegerStripSum.
constexpr int64_t most_integer_rows = 4;

/// Sums of `rows` rows of a (uint8, `a_stride` apart, k rounded up to 4 elements long) by a strip: sums[row][column].
using IntegerStripSum = void (*)(int64_t rows, const uint8_t* a, int64_t a_stride, const IntegerStrip& strip, int64_t k,
                                 int32_t* sums);

/// Those that this machine has, the fastest first; the last is plain loops. All give the same sums.
std::vector<IntegerStripSum> integer_strip_sums();

/// Rows of a, each in pieces of `bytes` bytes (a multiple of 4), which need not be adjacent: piece p of row i is
/// at at[p · step + i].
struct IntegerPieces {
  const uint8_t* const* at;
  int64_t step, count, bytes;
};

/// The most rows of one call of any IntegerTile.
constexpr int64_t most_tile_rows = 128;

/// The codes to which others are added at last. Rows of them are `stride` apart.
struct CodesAdded {
  const std::byte* codes;
  int64_t stride;
  CodeSum::Numbers numbers;
};

/// Numbers by which a tile computes lie within these bounds, so that nothing overflows on the way to codes:
/// |factors| < most_factor, |biases| < most_bias, and 1 / most_factor < scales < most_factor.
constexpr float most_factor = 0x1p40F, most_bias = 0x1p80F;

/// Whether these numbers do. NaN does not.
bool are_moderate(const CodeSum::Numbers& numbers);

/// What becomes of a strip's sums: bytes round(((sum + addend) · factor + bias) / scale), cut to least … most, plus
/// zero. Numbers are within the bounds above. Rows of bytes are `stride` apart.
struct CodesOfSums {
  const int32_t* addend;
  const float *factor, *bias;
  float scale, least, most;
  int32_t zero;
  bool has_sign;  ///< of the codes
  std::byte* out;
  int64_t stride;
  const CodesAdded* added;  ///< if are_moderate(); null: nothing is
};

/// The same sums as an IntegerStripSum's, of rows in pieces, or codes of them. Sums stay in registers, or close to
/// them.
struct IntegerTile {
  int64_t rows;    ///< the most of one call
  bool in_pieces;  ///< false: each row is one piece, and rows are at equal distances
  /// Rows of sums are `stride` apart.
  void (*sums)(int64_t rows, const IntegerPieces& a, const IntegerStrip& strip, int32_t* sums, int64_t stride);
  void (*codes)(int64_t rows, const IntegerPieces& a, const IntegerStrip& strip, const CodesOfSums& codes);
};

/// Those that this machine has, the fastest first; none without AVX-512 (BW).
std::vector<const IntegerTile*> integer_tiles();
/// The fastest, or the fastest for rows in pieces; null if there is none.
const IntegerTile* integer_tile(bool in_pieces = false);

}  // namespace tessera::kernels
