#include "tessera/ir/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>
#include <vector>

#include "tessera/base/philox.h"

namespace tessera::random {
namespace {

// The words of docs/random.md, written out.
TEST(Stream, words_are_those_of_philox) {
  const Stream stream{0x0123456789abcdef, 0xfedcba9876543210};
  std::vector<uint32_t> words(12);
  const uint64_t first = (uint64_t{5} << 32) * 4;  // block 5·2³²: the second word of the counter
  stream.words(first, 12, words.data());
  for (uint32_t w = 0; w < 12; ++w)
    EXPECT_EQ(words[w], philox4x32({w / 4, 5, 0x76543210, 0xfedcba98}, {0x89abcdef, 0x01234567})[w % 4]) << w;
}

TEST(Stream, pieces_are_the_whole) {
  const Stream stream{7, 3};
  std::vector<uint32_t> whole(41);
  stream.words(0, 41, whole.data());
  for (int64_t first = 0; first < 41; ++first)
    for (int64_t count : {1, 2, 3, 5, 9}) {
      if (first + count > 41) continue;
      std::vector<uint32_t> piece(count);
      stream.words(first, count, piece.data());
      EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + first)) << first << " " << count;
    }
}

TEST(Keys, differ_by_name_and_seed) {
  std::set<int64_t> keys;
  for (const char* name : {"a", "b", "ab", ""}) {
    keys.insert(key_of_name(name));
    for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) keys.insert(seeded(seed, key_of_name(name)));
  }
  for (float seed : {0.0f, 1.0f, 1.5f}) keys.insert(key_of_seed(seed));
  EXPECT_EQ(keys.size(), 4u * 4 + 3);
}

TEST(Fraction, is_in_the_half_open_interval) {
  EXPECT_EQ(fraction(0, 24), 0);
  EXPECT_EQ(fraction(0xffffffff, 24), 1 - 0x1p-24);
  EXPECT_EQ(fraction(0xffffffff, 8), 1 - 0x1p-8);
  EXPECT_EQ(fraction(0xffffffff, 32), 1 - 0x1p-32);
  EXPECT_EQ(fraction(0x80000000, 1), 0.5);
  EXPECT_EQ(fraction(0xffffffff, 0xffffffff, 53), 1 - 0x1p-53);
  EXPECT_EQ(fraction(0, 0x800, 53), 0x1p-53);
}

// Against the mathematical library, to a few units in the last place.
TEST(Normal, is_that_of_box_and_muller) {
  for (double length : {1.0, 0.999, 0.75, 0.7071, 0.5, 0.1, 1e-3, 0x1p-32, 0x1p-53})
    for (int i = 0; i < 64; ++i) {
      const double angle = i / 64.0 + 0x1p-20;
      const double expected = std::sqrt(-2 * std::log(length)) * std::cos(2 * std::numbers::pi * angle);
      EXPECT_NEAR(normal(length, angle), expected, 1e-14 * (1 + std::abs(expected))) << length << " " << angle;
    }
  EXPECT_EQ(normal(1, 0.3), 0);
}

TEST(Normal, has_the_moments_of_the_distribution) {
  constexpr int kCount = 1 << 18;
  std::vector<uint32_t> words(2 * kCount);
  Stream{12, 0}.words(0, 2 * kCount, words.data());
  double sum = 0, squares = 0, cubes = 0, fourths = 0;
  for (int i = 0; i < kCount; ++i) {
    const double z = normal(fraction(words[2 * i], 32) + 0x1p-32, fraction(words[2 * i + 1], 32));
    sum += z;
    squares += z * z;
    cubes += z * z * z;
    fourths += z * z * z * z;
  }
  // Within five standard errors.
  const double root = std::sqrt(kCount);
  EXPECT_NEAR(sum / kCount, 0, 5 / root);
  EXPECT_NEAR(squares / kCount, 1, 5 * std::sqrt(2.0) / root);
  EXPECT_NEAR(cubes / kCount, 0, 5 * std::sqrt(15.0) / root);
  EXPECT_NEAR(fourths / kCount, 3, 5 * std::sqrt(96.0) / root);
}

}  // namespace
}  // namespace tessera::random
