#include "tessera/data/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "random/settings.h"

namespace tessera::data {
namespace {

TEST(mixture, one_source_takes_all) {
  const Mixture mixture({3.0});
  for (int64_t i : {int64_t{0}, int64_t{1}, int64_t{1} << 61}) {
    EXPECT_EQ(mixture.at(i).source, 0u);
    EXPECT_EQ(mixture.at(i).index, i);
  }
}

TEST(mixture, deals_the_worked_example) {
  const Mixture mixture({0.7, 0.3});
  std::string dealt;
  for (int64_t i = 0; i < 20; ++i) dealt += mixture.at(i).source == 0 ? 'a' : 'b';
  EXPECT_EQ(dealt, "abaabaaabaabaabaaaba");
}

TEST(mixture, only_ratios_count) {
  const Mixture a({1.0, 2.0, 5.0}), b({1e300, 2e300, 5e300});
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(a.at(i).source, b.at(i).source);
}

TEST(mixture, what_is_rare_comes_up) {
  const Mixture mixture({1.0, 1e-30});
  int64_t rare = 0;
  for (int64_t i = (int64_t{1} << 31) - 4; i < (int64_t{1} << 31) + 4; ++i)
    rare += static_cast<int64_t>(mixture.at(i).source);
  EXPECT_EQ(rare, 1);
}

// Random access agrees with counting from the start, and no source is ever far from its share.
TEST(mixture, counts_and_shares_hold_at_every_sample) {
  const uint64_t seed = random::number_from("TESSERA_TEST_SEED", random::kFirstSeed);
  SCOPED_TRACE(testing::Message() << "TESSERA_TEST_SEED=" << seed);
  std::mt19937_64 generator(seed);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<double> weights(1 + generator() % 9);
    for (double& weight : weights) weight = 1e-3 + static_cast<double>(generator() % 1000);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const double most = 0.5 * std::ceil(std::log2(static_cast<double>(weights.size()))) + 1e-5;  // shares of 32 bits
    const Mixture mixture(weights);
    std::vector<int64_t> counts(weights.size());
    for (int64_t i = 0; i < 3000; ++i) {
      const Mixture::Draw draw = mixture.at(i);
      ASSERT_LT(draw.source, weights.size());
      ASSERT_EQ(draw.index, counts[draw.source]++) << "sample " << i;
      for (size_t s = 0; s < weights.size(); ++s)
        ASSERT_LE(std::abs(static_cast<double>(counts[s]) - weights[s] / sum * static_cast<double>(i + 1)), most)
            << "source " << s << " of " << weights.size() << ", sample " << i;
    }
  }
}

TEST(mixture, is_exact_at_large_indices) {
  const Mixture mixture({1.0, 3.0, 2.0, 2.0});  // shares that 32 bits hold
  const int64_t far = int64_t{1} << 60;         // divisible by 8: a whole number of rounds came before
  std::vector<int64_t> before = {far / 8, far / 8 * 3, far / 4, far / 4};
  for (int64_t i = 0; i < 16; ++i) {
    const Mixture::Draw draw = mixture.at(far + i);
    EXPECT_EQ(draw.index, before[draw.source]++);
  }
}

}  // namespace
}  // namespace tessera::data
