#pragma once

#include <memory>
#include <span>

#include "tessera/kernels/cpu/quantized/integer_strip.h"
#include "tessera/kernels/kernel.h"

/// Products of 8-bit integers, summed in int32 without rounding or saturation: c = (a - zero point) · (b - zero point).
namespace tessera::kernels {

/// Columns of a packed matrix.
struct PackedColumns {
  const std::byte* strips;
  const std::byte* sums;
  const std::byte* wide;
};

/// How a matrix b [k, n] of uint8 or int8 is packed: as int8 (uint8 less 128) in strips of 64 columns, with the sums of
/// its columns behind it, and then the wide vectors of each strip (integer_strip.h). The form is the same on every
/// machine.
struct IntegerWeight {
  int64_t k = 0, n = 0;

  int64_t depth() const { return (k + 63) / 64 * 64; }              ///< rows of a strip, padding included
  int64_t strips() const { return (n + 63) / 64; }                  ///< of 64 columns
  int64_t packed_bytes() const { return strips() * 64 * depth(); }  ///< without the sums
  int64_t most_wide() const { return depth() / 8; }                 ///< wide vectors of a strip that are listed
  int64_t wide_bytes() const { return (4 + most_wide() + 15) / 16 * 64; }
  int64_t bytes() const { return packed_bytes() + strips() * (64 * 4 + wide_bytes()); }
  /// Those from strip `strip` on.
  PackedColumns columns(const std::byte* packed, int64_t strip = 0) const {
    const std::byte* sums = packed + packed_bytes();
    return {packed + strip * 64 * depth(), sums + strip * 64 * 4, sums + strips() * 64 * 4 + strip * wide_bytes()};
  }
  IntegerStrip strip(PackedColumns columns, int64_t index = 0) const {
    return {reinterpret_cast<const int8_t*>(columns.strips) + index * 64 * depth(),
            reinterpret_cast<const int32_t*>(columns.wide + index * wide_bytes())};
  }
};

/// Packs a row-major b.
void pack_integers(const IntegerWeight& weight, DType dtype, const void* b, std::byte* packed, int threads);

/// The zero points of an operand: one number, or one for each row of a (each column of b); null: zero. Those of rows
/// repeat, and row 0 has number `first`.
struct ZeroPoints {
  const void* data = nullptr;
  int64_t count = 1;
  int64_t first = 0;
};

class IntegerProduct {
 public:
  virtual ~IntegerProduct() = default;
  virtual size_t scratch_bytes() const = 0;
  /// c is row-major [m, n].
  virtual void run(const void* a, ZeroPoints a_zero, PackedColumns b, ZeroPoints b_zero, int32_t* c, void* scratch) = 0;
  /// The same but for what zero points change: c = Σ a·b of a as uint8 (int8 plus 128) and b as int8 (uint8 less 128).
  virtual void run_plain(const void* a, PackedColumns b, int32_t* c, void* scratch) = 0;
};

/// The correction of run_plain()'s sums of `columns` columns, if that is the same for all rows: a has one zero
/// point, and those of b are all what its packed form takes for zero. False if it is not.
bool plain_correction(DType a_type, ZeroPoints a_zero, DType b_type, ZeroPoints b_zero, PackedColumns b,
                      int64_t columns, int32_t* addend);

/// The rows of a product's left operand [m, k]. By default they are contiguous, in the operand's type.
struct IntegerRows {
  int64_t m = 0;
  DType type = DType::uint8;  ///< of the operand, and of its zero points
  /// Not 0: the distance of rows that are uint8 already (int8 plus 128), with k rounded up to 4 elements to read.
  int64_t ready_stride = 0;
};

/// a by a packed weight whose elements were of type `b_type`.
std::unique_ptr<IntegerProduct> make_integer_product(const IntegerRows& a, const IntegerWeight& weight, DType b_type,
                                                     int threads);

}  // namespace tessera::kernels
