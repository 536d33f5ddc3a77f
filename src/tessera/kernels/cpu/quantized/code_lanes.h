#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

/// Floats as codes of 8 bits, one by one or sixteen at once, in vectors as wide as the CPU has them.
namespace tessera::kernels {

constexpr int64_t kCodeLanes = 16;

typedef float LaneFloats __attribute__((vector_size(64)));
typedef int32_t LaneInts __attribute__((vector_size(64)));
typedef uint32_t LaneWords __attribute__((vector_size(64)));

/// Elements 0 … count - 1, zeros behind.
template <typename Lanes, typename T>
[[gnu::always_inline]] inline void load_lanes(const T* from, int64_t count, Lanes& lanes) {
  if (count == kCodeLanes) {
    std::memcpy(&lanes, from, sizeof lanes);
    return;
  }
  lanes = Lanes{};
  std::memcpy(&lanes, from, static_cast<size_t>(count) * sizeof(T));
}

/// Ratios as codes of type To, uint8 or int8: round(ratio) + zero, half to even, cut to the codes' range; NaN becomes
/// 0.
template <typename To>
class Coder {
 public:
  /// `cuts`: as if ratios below zero were zero.
  explicit Coder(int zero, bool cuts = false)
      : least_(cuts ? 0 : static_cast<float>(std::numeric_limits<To>::min() - zero)),
        most_(static_cast<float>(std::numeric_limits<To>::max() - zero)),
        zero_(zero) {}

  /// That cuts ratios to these bounds.
  Coder(float least, float most, int zero) : least_(least), most_(most), zero_(zero) {}

  /// What ratios are cut to.
  float least() const { return least_; }
  float most() const { return most_; }

  [[gnu::always_inline]] To code(float ratio) const {
    float rounded;
    round(ratio, rounded);
    return static_cast<To>(ratio == ratio ? static_cast<int>(rounded) + zero_ : 0);
  }

  /// The first `count` of them.
  [[gnu::always_inline]] void store(const LaneFloats& ratio, int64_t count, To* out) const {
    LaneFloats rounded;
    round(ratio, rounded);
    const LaneInts codes = __builtin_convertvector(rounded, LaneInts) + zero_;
    typedef To Bytes __attribute__((vector_size(16)));
    const auto bytes = __builtin_convertvector(ratio == ratio ? codes : LaneInts{}, Bytes);
    if (count == kCodeLanes)
      std::memcpy(out, &bytes, kCodeLanes);
    else
      std::memcpy(out, &bytes, static_cast<size_t>(count));
  }

 private:
  /// Rounds a float or lanes; NaN becomes any number.
  template <typename Floats>
  [[gnu::always_inline]] void round(const Floats& ratio, Floats& rounded) const {
    const Floats low = ratio > least_ ? ratio : Floats{} + least_, cut = low < most_ ? low : Floats{} + most_;
    constexpr float kRounds = 12582912;  // 1.5·2²³: what is added to it is rounded to an integer
    rounded = (cut + kRounds) - kRounds;
  }

  float least_, most_;
  int zero_;
};

}  // namespace tessera::kernels
