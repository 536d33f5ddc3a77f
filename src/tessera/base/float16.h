#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

/// Storage of the 16-bit floats: arithmetic happens in float32. Both conversions are branch-free, so that loops over
/// them vectorise; narrowing rounds to nearest even and keeps infinities and NaNs.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t wide = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = wide + 0x7fffu + ((wide >> 16) & 1u);
    const bool nan = (wide & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>((nan ? wide | 0x400000u : rounded) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) {
    const uint32_t wide = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (wide >> 16) & 0x8000u;
    const uint32_t magnitude = wide & 0x7fffffffu;
    const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    // Adding 0.5 leaves the magnitude in units of 2^-24, float16's smallest step, in the low bits, rounded.
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t finite = magnitude < 0x38800000u ? small : normal;
    const uint32_t bounded = magnitude >= 0x477ff000u ? 0x7c00u : finite;
    const uint32_t nan = 0x7e00u | ((wide >> 13) & 0x1ffu);
    bits = static_cast<uint16_t>(sign | (magnitude > 0x7f800000u ? nan : bounded));
  }
  explicit operator float() const {
    const uint32_t magnitude = bits & 0x7fffu;
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;  // right for subnormals too
    const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
  }
};

}  // namespace tessera
