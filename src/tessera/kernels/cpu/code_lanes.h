#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

/// Sixteen floats at once as codes of 8 bits, in vectors as wide as the CPU has them.
namespace tessera::kernels {

constexpr int64_t kCodeLanes = 16;

typedef float FloatLanes __attribute__((vector_size(64)));
typedef int32_t IntLanes __attribute__((vector_size(64)));
typedef uint32_t WordLanes __attribute__((vector_size(64)));

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
class CodeLanes {
 public:
  /// `cuts`: as if ratios below zero were zero.
  explicit CodeLanes(int zero, bool cuts = false)
      : least_(cuts ? 0 : static_cast<float>(std::numeric_limits<To>::min() - zero)),
        most_(static_cast<float>(std::numeric_limits<To>::max() - zero)),
        zero_(zero) {}

  [[gnu::always_inline]] void store(const FloatLanes& ratio, int64_t count, To* out) const {
    const FloatLanes low = ratio > least_ ? ratio : FloatLanes{} + least_,
                     cut = low < most_ ? low : FloatLanes{} + most_;
    constexpr float kRounds = 12582912;  // 1.5·2²³: what is added to it is rounded to an integer
    const IntLanes codes = __builtin_convertvector((cut + kRounds) - kRounds, IntLanes) + zero_;
    typedef To Bytes __attribute__((vector_size(16)));
    const auto bytes = __builtin_convertvector(ratio == ratio ? codes : IntLanes{}, Bytes);
    if (count == kCodeLanes)
      std::memcpy(out, &bytes, kCodeLanes);
    else
      std::memcpy(out, &bytes, static_cast<size_t>(count));
  }

 private:
  float least_, most_;
  int zero_;
};

}  // namespace tessera::kernels
