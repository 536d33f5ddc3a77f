#pragma once

#include <cstdint>
#include <string_view>

/// Random numbers that depend only on where they are used; docs/random.md defines them to the bit.
///
/// A number depends on a key (the seed and the operator), a run (the step of training), and the index of its element in
/// the whole tensor, and on nothing else, so they are the same on every mesh and machine and in every repetition.
namespace tessera::random {

/// The int attribute of an operator's key. Nodes of the same key draw the same numbers.
inline constexpr std::string_view kKey = "key";

/// The key of an operator or a parameter that has this name.
int64_t key_of_name(std::string_view name);
/// The key of an operator to which the model gives a seed of its own.
int64_t key_of_seed(float seed);
/// The key `of` something in runs with that seed.
int64_t seeded(uint64_t seed, int64_t of);

/// Which 32-bit words a key and a run give: word w is word w mod 4 of Philox4x32-10 with the counter (w / 4, run).
struct Stream {
  uint64_t key = 0, run = 0;

  /// Words first … first + count - 1.
  void words(uint64_t first, int64_t count, uint32_t* out) const;
};

/// In [0, 1): the first `digits` bits of a word, or of two (the first major), as a binary fraction. 1 ≤ digits ≤ 32;
/// ≤ 53.
inline double fraction(uint32_t word, int digits) {
  return static_cast<double>(word >> (32 - digits)) / static_cast<double>(uint64_t{1} << digits);
}
inline double fraction(uint32_t major, uint32_t minor, int digits) {
  const uint64_t both = static_cast<uint64_t>(major) << 32 | minor;
  return static_cast<double>(both >> (64 - digits)) / static_cast<double>(uint64_t{1} << digits);
}

/// A number with the distribution N(0, 1), from a `length` in (0, 1] and an `angle` in [0, 1): √(-2 ln length) · cos(2π
/// angle) (Box and Muller, "A note on the generation of random normal deviates", 1958). Uses only operations that IEEE
/// 754 rounds exactly, so that every machine gives the same bits.
double normal(double length, double angle);

}  // namespace tessera::random
