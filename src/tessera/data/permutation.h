#pragma once

#include <array>
#include <cstdint>

namespace tessera::data {

/// A random permutation of 0 … count - 1 that is computed, not stored: at(i) takes constant time and no memory.
///
/// An index is written as two digits, i = right·a + left with a = ⌈√count⌉, and goes through a Feistel network that
/// adds instead of XORs, so that it needs no powers of two (Black and Rogaway, "Ciphers with arbitrary finite domains",
/// CT-RSA 2002, section 5): each round adds a random function of one digit to the other, which can be undone. The
/// digits reach from 0 to a·⌈count/a⌉ - 1, slightly past count; an index that lands there goes through again until it
/// does not (cycle walking, ibid., section 3), which keeps the permutation one of 0 … count - 1.
///
/// Example: count 7 has a = 3 and 3 values of the right digit, so 9 codes, of which 7 and 8 are walked over.
class Permutation {
 public:
  /// `seed` and the two words of `tweak` (a source and an epoch, for example) choose the permutation. Count: 1 … 2^62.
  Permutation(int64_t count, uint64_t seed, uint32_t tweak_low = 0, uint32_t tweak_high = 0);

  int64_t at(int64_t index) const;
  int64_t count() const { return static_cast<int64_t>(count_); }

 private:
  uint64_t pass(uint64_t code) const;
  uint64_t random(uint32_t round, uint64_t digit) const;

  uint64_t count_, left_, right_;  ///< left_·right_ ≥ count_: how many values each digit has
  uint64_t seed_;
  std::array<uint32_t, 2> tweak_;
};

}  // namespace tessera::data
