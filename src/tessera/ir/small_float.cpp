#include "tessera/ir/small_float.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {

SmallFloat::SmallFloat(const Format& format) : format_(format) {
  const int bits = format.exponent_bits + format.mantissa_bits;
  const int codes = 1 << bits, mantissas = 1 << format.mantissa_bits;
  const bool has_zero = format.has_sign;  // E8M0 has no zero: each code is a power of two
  sign_ = static_cast<uint8_t>(format.has_sign ? codes : 0);
  const int reserved = format.specials == Specials::infinities    ? mantissas
                       : format.specials == Specials::last_is_nan ? 1
                                                                  : 0;
  for (int code = 0; code < codes - reserved; ++code) {
    const int exponent = code >> format.mantissa_bits, mantissa = code & (mantissas - 1);
    const bool subnormal = exponent == 0 && has_zero;
    const double significand = static_cast<double>(mantissa) / mantissas + (subnormal ? 0 : 1);
    magnitudes_.push_back(std::ldexp(significand, (subnormal ? 1 : exponent) - format.bias));
  }
  infinity_ = static_cast<uint8_t>(codes - mantissas);
  nan_ = static_cast<uint8_t>(format.specials == Specials::negative_zero ? sign_
                              : format.specials == Specials::infinities  ? codes - mantissas / 2
                                                                         : codes - 1);
  values_.assign(256, std::numeric_limits<float>::quiet_NaN());
  for (size_t code = 0; code < magnitudes_.size(); ++code) {
    values_[code] = static_cast<float>(magnitudes_[code]);
    if (sign_) values_[code | sign_] = -values_[code];
  }
  if (format.specials == Specials::negative_zero) values_[sign_] = std::numeric_limits<float>::quiet_NaN();
  if (format.specials == Specials::infinities) {
    values_[infinity_] = std::numeric_limits<float>::infinity();
    values_[infinity_ | sign_] = -values_[infinity_];
  }
}

uint8_t SmallFloat::beyond(bool negative, bool saturate) const {
  const auto sign = static_cast<uint8_t>(negative ? sign_ : 0);
  if (saturate || format_.specials == Specials::none) return static_cast<uint8_t>((magnitudes_.size() - 1) | sign);
  if (format_.specials == Specials::infinities) return infinity_ | sign;
  return format_.specials == Specials::negative_zero ? nan_ : static_cast<uint8_t>(nan_ | sign);
}

uint8_t SmallFloat::encode(double value, bool saturate) const {
  const bool negative = std::signbit(value);
  if (std::isnan(value)) {
    if (format_.specials == Specials::none) return sign_;
    return format_.specials == Specials::negative_zero || !negative ? nan_ : static_cast<uint8_t>(nan_ | sign_);
  }
  if (negative && !format_.has_sign && value != 0) return nan_;
  const double magnitude = std::abs(value), largest = magnitudes_.back();
  const auto above =
      static_cast<size_t>(std::lower_bound(magnitudes_.begin(), magnitudes_.end(), magnitude) - magnitudes_.begin());
  size_t code = above;
  if (above == 0) {
    code = 0;
  } else if (above == magnitudes_.size()) {
    // Beyond the largest number stands one more, as far as the one before, to which larger values round.
    const double next = largest + (largest - magnitudes_[above - 2]);
    const double middle = (largest + next) / 2;
    if (magnitude > middle || (magnitude == middle && above % 2 == 0)) return beyond(negative, saturate);
    code = above - 1;
  } else {
    const double below = magnitude - magnitudes_[above - 1], over = magnitudes_[above] - magnitude;
    if (below < over || (below == over && above % 2 == 1)) code = above - 1;
  }
  if (!negative || (code == 0 && format_.specials == Specials::negative_zero)) return static_cast<uint8_t>(code);
  return static_cast<uint8_t>(code | sign_);
}

uint8_t SmallFloat::encode_toward(double value, bool up, bool saturate) const {
  if (std::isnan(value) || value < 0) return nan_;
  auto above =
      static_cast<size_t>(std::lower_bound(magnitudes_.begin(), magnitudes_.end(), value) - magnitudes_.begin());
  if (above == magnitudes_.size())
    return up || std::isinf(value) ? beyond(false, saturate) : static_cast<uint8_t>(above - 1);
  if (!up && above > 0 && magnitudes_[above] != value) --above;
  return static_cast<uint8_t>(above);
}

using Specials = SmallFloat::Specials;

const SmallFloat& float8e4m3fn() {
  static const SmallFloat format({4, 3, 7, Specials::last_is_nan});
  return format;
}
const SmallFloat& float8e4m3fnuz() {
  static const SmallFloat format({4, 3, 8, Specials::negative_zero});
  return format;
}
const SmallFloat& float8e5m2() {
  static const SmallFloat format({5, 2, 15, Specials::infinities});
  return format;
}
const SmallFloat& float8e5m2fnuz() {
  static const SmallFloat format({5, 2, 16, Specials::negative_zero});
  return format;
}
const SmallFloat& float4e2m1() {
  static const SmallFloat format({2, 1, 1, Specials::none});
  return format;
}
const SmallFloat& float8e8m0() {
  static const SmallFloat format({8, 0, 127, Specials::last_is_nan, false});
  return format;
}

}  // namespace tessera
