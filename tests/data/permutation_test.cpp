#include "tessera/data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "random/settings.h"

namespace tessera::data {
namespace {

void expect_permutation(int64_t count, uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "count " << count << ", seed " << seed);
  const Permutation permutation(count, seed);
  std::vector<bool> met(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t to = permutation.at(i);
    ASSERT_TRUE(to >= 0 && to < count) << to;
    ASSERT_FALSE(met[static_cast<size_t>(to)]) << to << " twice";
    met[static_cast<size_t>(to)] = true;
  }
}

TEST(permutation, meets_every_index_once) {
  for (int64_t count = 1; count <= 300; ++count) expect_permutation(count, 7);
}

TEST(permutation, meets_every_index_once_at_random_counts) {
  const uint64_t seed = random::number_from("TESSERA_TEST_SEED", random::kFirstSeed);
  SCOPED_TRACE(testing::Message() << "TESSERA_TEST_SEED=" << seed);
  std::mt19937_64 generator(seed);
  for (int i = 0; i < 20; ++i) expect_permutation(1 + static_cast<int64_t>(generator() % 100'000), generator());
}

TEST(permutation, seed_and_tweak_choose_it) {
  const auto first = [](const Permutation& permutation) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < 20; ++i) all.push_back(permutation.at(i));
    return all;
  };
  const std::set<std::vector<int64_t>> different = {first(Permutation(1000, 1)), first(Permutation(1000, 2)),
                                                    first(Permutation(1000, uint64_t{1} << 32 | 1)),
                                                    first(Permutation(1000, 1, 1)), first(Permutation(1000, 1, 0, 1))};
  EXPECT_EQ(different.size(), 5u);
  EXPECT_EQ(first(Permutation(1000, 1)), first(Permutation(1000, 1)));
}

// Runs that were begun with these samples must go on with them.
TEST(permutation, is_the_same_in_every_release) {
  const Permutation permutation(10, 42);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < 10; ++i) all.push_back(permutation.at(i));
  EXPECT_EQ(all, (std::vector<int64_t>{1, 6, 9, 4, 5, 8, 7, 0, 3, 2}));
}

TEST(permutation, has_no_bound_in_reach) {
  const int64_t count = int64_t{1} << 62;
  const Permutation permutation(count, 3);
  std::set<int64_t> met;
  for (int64_t i = 0; i < 1000; ++i) met.insert(permutation.at(count - 1 - i));
  EXPECT_EQ(met.size(), 1000u);
  EXPECT_GE(*met.begin(), 0);
  EXPECT_LT(*met.rbegin(), count);
}

// The sum over cells of (met - expected)² / expected, for `trials` of equally likely cells.
double chi_squared(const std::vector<int>& cells, int trials) {
  const double expected = static_cast<double>(trials) / static_cast<double>(cells.size());
  double sum = 0;
  for (int met : cells) sum += (met - expected) * (met - expected) / expected;
  return sum;
}

// Over seeds, the pair (image of 0, image of 1) meets all 11·10 ordered pairs equally often. A sum of 109 degrees of
// freedom lies above 109 + 5·√218 ≈ 183 less than once in 100,000 times.
TEST(permutation, images_are_uniform_over_seeds) {
  constexpr int kTrials = 20'000, kCount = 11;
  std::vector<int> cells(kCount * (kCount - 1));
  for (int seed = 0; seed < kTrials; ++seed) {
    const Permutation permutation(kCount, static_cast<uint64_t>(seed));
    const auto a = permutation.at(0), b = permutation.at(1);
    ++cells[static_cast<size_t>(a * (kCount - 1) + (b > a ? b - 1 : b))];
  }
  EXPECT_LT(chi_squared(cells, kTrials), 183);
}

// Neighbours do not stay neighbours: their distances (mod count) meet all residues equally often.
TEST(permutation, neighbours_part) {
  constexpr int kCount = 20'011, kCells = 100;
  const Permutation permutation(kCount, 5);
  std::vector<int> cells(kCells);
  for (int64_t i = 0; i + 1 < kCount; ++i) {
    const int64_t distance = (permutation.at(i + 1) - permutation.at(i) + kCount) % kCount;
    ++cells[static_cast<size_t>(distance * kCells / kCount)];
  }
  EXPECT_LT(chi_squared(cells, kCount - 1), 99 + 5 * std::sqrt(2.0 * 99));
}

}  // namespace
}  // namespace tessera::data
