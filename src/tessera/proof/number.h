#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <tuple>

namespace tessera::proof {

/// A 128-bit hash of a computation. Equal computations have equal numbers, on every machine; different ones have
/// different numbers (a collision is less likely than a memory error).
struct Number {
  uint64_t high = 0, low = 0;

  bool operator==(const Number&) const = default;
  bool operator<(const Number& other) const { return std::tie(high, low) < std::tie(other.high, other.low); }
};

/// Makes a number from its inputs, in order.
class Mixer {
 public:
  Mixer& add(uint64_t word) {
    high_ = stirred((high_ ^ word) * 0x9e3779b97f4a7c15ULL);
    low_ = stirred((low_ + word) * 0xc2b2ae3d27d4eb4fULL + 0x165667b19e3779f9ULL);
    return *this;
  }
  Mixer& add(const Number& number) { return add(number.high).add(number.low); }
  /// The length counts, too: "ab", "c" is not "a", "bc".
  Mixer& add(std::string_view bytes) {
    add(static_cast<uint64_t>(bytes.size()));
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
      add(word);
    }
    return *this;
  }
  Number number() const { return {stirred(high_), stirred(low_ ^ high_)}; }

 private:
  static uint64_t stirred(uint64_t word) { return word ^ (word >> 31); }

  uint64_t high_ = 0x243f6a8885a308d3ULL, low_ = 0x13198a2e03707344ULL;
};

}  // namespace tessera::proof
