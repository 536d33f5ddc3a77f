// How tokens are chosen by logits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tessera/generation.h"

namespace tessera {
namespace {

using testing::HasSubstr;

const std::vector<float> kLogits = {0, 3, 1, 3, 2};

// How often each token is chosen at that many positions.
std::vector<double> shares(const std::vector<float>& logits, const Sampling& sampling, int positions = 20'000) {
  std::vector<double> counts(logits.size());
  for (int i = 0; i < positions; ++i)
    counts[static_cast<size_t>(choose_token(logits, sampling, 0, static_cast<uint64_t>(i)))] += 1.0 / positions;
  return counts;
}

TEST(Sampling, takes_the_first_of_the_largest_without_a_temperature) {
  EXPECT_EQ(choose_token(kLogits, {}, 0, 0), 1);
  EXPECT_EQ(choose_token({NAN, -1, -2}, {}, 0, 0), 1) << "NaN does not count";
}

TEST(Sampling, draws_tokens_by_their_probabilities) {
  double total = 0;
  for (float logit : kLogits) total += std::exp(logit / 2);
  const std::vector<double> drawn = shares(kLogits, {.temperature = 2, .seed = 5});
  for (size_t i = 0; i < kLogits.size(); ++i) EXPECT_NEAR(drawn[i], std::exp(kLogits[i] / 2) / total, 0.015) << i;
}

TEST(Sampling, leaves_out_what_is_not_among_the_likeliest) {
  EXPECT_NEAR(shares(kLogits, {.temperature = 3, .top_k = 1})[1], 1, 1e-9);
  const std::vector<double> two = shares(kLogits, {.temperature = 3, .top_k = 2});
  EXPECT_NEAR(two[1], 0.5, 0.02);
  EXPECT_NEAR(two[1] + two[3], 1, 1e-9) << "the first of equals, then the others";
  // Both 3s have 0.40 of the probability, and 0.80 with each other; the 2 takes it beyond 0.9.
  const std::vector<double> most = shares(kLogits, {.temperature = 1, .top_p = 0.9});
  EXPECT_EQ(most[0] + most[2], 0);
  EXPECT_GT(most[4], 0.1);
  const std::vector<double> least = shares(kLogits, {.temperature = 1, .top_p = 1e-9});
  EXPECT_NEAR(least[1], 1, 1e-9) << "at least one token";
  EXPECT_EQ(shares(kLogits, {.temperature = 1, .top_k = 3, .top_p = 0.5})[4], 0) << "of the three, half";
}

TEST(Sampling, depends_on_seed_text_and_position_only) {
  const std::vector<float> even(1000, 0);
  const Sampling sampling{.temperature = 1, .seed = 7};
  std::set<int64_t> chosen;
  for (uint64_t text = 0; text < 4; ++text)
    for (uint64_t position = 0; position < 4; ++position) {
      chosen.insert(choose_token(even, sampling, text, position));
      EXPECT_EQ(choose_token(even, sampling, text, position), choose_token(even, sampling, text, position));
    }
  EXPECT_GT(chosen.size(), 12u);
  EXPECT_NE(choose_token(even, {.temperature = 1, .seed = 8}, 0, 0), choose_token(even, sampling, 0, 0));
}

TEST(Sampling, refuses_settings_that_are_none) {
  const auto message = [](const std::vector<float>& logits, const Sampling& sampling) -> std::string {
    try {
      choose_token(logits, sampling, 3, 4);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message(kLogits, {.temperature = -1}), HasSubstr("temperature is -1;"));
  EXPECT_THAT(message(kLogits, {.top_k = -1}), HasSubstr("top_k is -1;"));
  EXPECT_THAT(message(kLogits, {.top_p = 0}), HasSubstr("top_p is 0;"));
  EXPECT_THAT(message(kLogits, {.top_p = NAN}), HasSubstr("top_p is nan;"));
  EXPECT_THROW(require_sampling({.top_p = 2}), Error);
  EXPECT_NO_THROW(require_sampling({.temperature = 1, .top_k = 3, .top_p = 0.5}));
  EXPECT_THAT(message({NAN, NAN}, {}), HasSubstr("no logit of token 4 of text 3 is a finite number"));
  EXPECT_THAT(message({-std::numeric_limits<float>::infinity()}, {}), HasSubstr("no logit"));
}

}  // namespace
}  // namespace tessera
