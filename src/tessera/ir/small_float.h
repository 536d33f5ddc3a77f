#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// A format of floating-point numbers of at most 8 bits: sign, exponent, mantissa. The numbers are those of OCP's
/// "8-bit Floating Point Specification" (E4M3, E5M2) and "Microscaling Formats" (E2M1, E8M0); those with "uz" have one
/// more power of two, no infinities, no negative zero, and NaN in its place.
class SmallFloat {
 public:
  enum class Specials {
    none,           ///< every code is a number
    infinities,     ///< the largest exponent holds infinities and NaNs, as IEEE 754 has it
    last_is_nan,    ///< the code of all ones is NaN
    negative_zero,  ///< the code of negative zero is NaN
  };
  struct Format {
    int exponent_bits, mantissa_bits, bias;
    Specials specials;
    bool has_sign = true;
  };
  explicit SmallFloat(const Format& format);

  /// NaN for a code of one.
  float decode(uint8_t code) const { return values_[code]; }
  /// The nearest number; of two equally near, that with an even code. Larger numbers than the largest, and infinity,
  /// become the largest if `saturate`, else infinity, or NaN if the format has no infinity. NaN becomes NaN, or
  /// negative zero where there is none. Without a sign, negative numbers become NaN.
  uint8_t encode(double value, bool saturate = true) const;
  /// For powers of two (no mantissa bits, no sign): the next one at or above the value if `up`, else at or below it.
  uint8_t encode_toward(double value, bool up, bool saturate = true) const;

 private:
  uint8_t beyond(bool negative, bool saturate) const;

  Format format_;
  uint8_t sign_, nan_, infinity_;
  std::vector<float> values_;       ///< of all codes
  std::vector<double> magnitudes_;  ///< of the codes of finite numbers without a sign, ascending
};

/// FLOAT8E4M3FN, FLOAT8E4M3FNUZ, FLOAT8E5M2, FLOAT8E5M2FNUZ, FLOAT4E2M1 and FLOAT8E8M0 of ONNX.
const SmallFloat& float8e4m3fn();
const SmallFloat& float8e4m3fnuz();
const SmallFloat& float8e5m2();
const SmallFloat& float8e5m2fnuz();
const SmallFloat& float4e2m1();
const SmallFloat& float8e8m0();

}  // namespace tessera
