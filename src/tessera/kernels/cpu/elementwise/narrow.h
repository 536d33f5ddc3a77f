#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tessera/ir/small_float.h"
#include "tessera/kernels/kernel.h"

/// Elements of types that kernels store but do not compute in.
namespace tessera::kernels {

/// Floats of 8 bits, and floats and integers of 4 and 2 bits.
bool is_narrow_storage(DType dtype);

/// Reads elements as floats.
class NarrowReader {
 public:
  explicit NarrowReader(DType dtype);
  float at(const uint8_t* elements, int64_t i) const {
    const int code = elements[i / per_byte_] >> (bits_ * static_cast<int>(i % per_byte_));
    return values_[static_cast<size_t>(code) & (values_.size() - 1)];
  }

 private:
  int bits_, per_byte_;
  std::vector<float> values_;  ///< of all codes
};

/// Makes elements from numbers. To floats, as SmallFloat does; integers keep the lowest bits of a number that is cut
/// off after the point.
class NarrowWriter {
 public:
  /// `round_mode` is for powers of two: "up", "down" or "nearest".
  explicit NarrowWriter(DType dtype, bool saturate = true, std::string_view round_mode = "up");
  uint8_t code_of(double value) const;
  uint8_t code_of(int64_t value) const;
  int per_byte() const { return per_byte_; }
  /// Byte `b` of `count` elements whose codes are code(i).
  template <typename Code>
  uint8_t byte(int64_t b, int64_t count, Code code) const {
    uint8_t byte = 0;
    for (int j = 0; j < per_byte_; ++j)
      if (const int64_t i = b * per_byte_ + j; i < count) byte |= static_cast<uint8_t>(code(i) << (bits_ * j));
    return byte;
  }

 private:
  uint8_t mask() const { return static_cast<uint8_t>((1 << bits_) - 1); }

  const SmallFloat* format_;
  int bits_, per_byte_;
  bool saturate_, toward_, up_;
};

/// A Cast from or to such a type.
std::unique_ptr<Kernel> prepare_narrow_cast(const PrepareContext& context);

}  // namespace tessera::kernels
