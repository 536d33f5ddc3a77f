#pragma once

namespace tessera::property {

/// How far a result on many ranks may be from the result on one rank: a part of the largest magnitude in it. NaNs and
/// infinities must be in the same places. All bounds are here; a family that needs a larger one has a bug.
struct Bound {
  double relative = 0;
  /// The least that counts as the largest magnitude: of what results are differences of, if they may cancel.
  double scale = 0;
};

/// Data movement, selection, element-wise operators, integers, and sums of integer values below 2^24: the same bits.
inline constexpr Bound kExact{0};
/// A float reduction whose order depends on the extents that a rank has (sums over lanes): 8 float32 roundings.
inline constexpr Bound kReordered{8 * 0x1p-24};
/// Exponentials and square roots of such sums: softmax, normalizations. The rounding of the sum, then of the division.
inline constexpr Bound kNormalized{16 * 0x1p-24};
/// Attention: two products and a softmax between them, tiled by the extents that a rank has.
inline constexpr Bound kAttention{32 * 0x1p-24};
/// Several of these one after another, on real numbers.
inline constexpr Bound kChain{128 * 0x1p-24};
/// Results rounded to 8 bits of mantissa; one unit in the last place either way.
inline constexpr Bound kBFloat16{0x1p-7};

}  // namespace tessera::property
