#include "tessera/data/permutation.h"

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/philox.h"

namespace tessera::data {
namespace {

constexpr uint32_t kFeistelRounds = 8;  // four on each digit

// ⌈√value⌉
uint64_t upper_root(uint64_t value) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(value)));
  while (root * root >= value && root > 0) --root;
  while (root * root < value) ++root;
  return root;
}

}  // namespace

Permutation::Permutation(int64_t count, uint64_t seed, uint32_t tweak_low, uint32_t tweak_high)
    : count_(static_cast<uint64_t>(count)), left_(0), right_(0), seed_(seed), tweak_{tweak_low, tweak_high} {
  check(count > 0 && count <= int64_t{1} << 62, "a permutation has 1 to 2^62 elements");
  left_ = upper_root(count_);
  right_ = (count_ + left_ - 1) / left_;
}

uint64_t Permutation::random(uint32_t round, uint64_t digit) const {
  // A digit is below 2^31 + 1, so the round fits above it.
  const std::array<uint32_t, 4> words = philox4x32({static_cast<uint32_t>(digit), round, tweak_[0], tweak_[1]},
                                                   {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  return uint64_t{words[1]} << 32 | words[0];
}

uint64_t Permutation::pass(uint64_t code) const {
  uint64_t left = code % left_, right = code / left_;
  for (uint32_t round = 0; round < kFeistelRounds; round += 2) {
    left = (left + random(round, right) % left_) % left_;
    right = (right + random(round + 1, left) % right_) % right_;
  }
  return right * left_ + left;
}

int64_t Permutation::at(int64_t index) const {
  check(index >= 0 && static_cast<uint64_t>(index) < count_, "an index lies in its permutation");
  uint64_t code = pass(static_cast<uint64_t>(index));
  while (code >= count_) code = pass(code);
  return static_cast<int64_t>(code);
}

}  // namespace tessera::data
