#include "tessera/plan/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tessera::plan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Outcomes by a list, and expected costs by another.
class Listed : public Evaluator {
 public:
  Listed(std::vector<Bounds> bounds, std::vector<Outcome> outcomes, std::vector<double> expected)
      : bounds_(std::move(bounds)), outcomes_(std::move(outcomes)), expected_(std::move(expected)) {}
  Bounds bounds(size_t candidate) override { return bounds_[candidate]; }
  double expected_cost(size_t candidate) override { return expected_[candidate]; }
  Outcome evaluate(size_t candidate) override {
    order.push_back(candidate);
    return outcomes_[candidate];
  }

  std::vector<size_t> order;

 private:
  std::vector<Bounds> bounds_;
  std::vector<Outcome> outcomes_;
  std::vector<double> expected_;
};

TEST(Search, drops_what_a_bound_excludes) {
  Listed listed({{2, 0}, {3, 0}, {4, 0}}, {{5, 1, {}}, {3, 1, {}}, {9, 1, {}}}, {2, 1, 3});
  const Searched found = search(3, listed, {});
  EXPECT_THAT(listed.order, ElementsAre(1, 0));
  EXPECT_THAT(found.too_slow, ElementsAre(2));
  EXPECT_EQ(found.fit.front().candidate, 1U);
  EXPECT_THAT(found.fit, SizeIs(2));
}

TEST(Search, never_takes_what_does_not_fit) {
  Listed listed({{0, 0}, {0, 0}, {0, 11}, {0, 0}}, {{1, 20, {}}, {2, 10, {}}, {1, 30, {}}, {0, 0, "no"}}, {1, 2, 3, 0});
  const Searched found = search(4, listed, {Objective::seconds, 10});
  ASSERT_THAT(found.fit, SizeIs(1));
  EXPECT_EQ(found.fit.front().candidate, 1U);
  EXPECT_EQ(found.unfit.front().candidate, 0U);
  EXPECT_THAT(found.too_large, ElementsAre(2));
  EXPECT_EQ(found.refused.front().outcome.refused, "no");
}

TEST(Search, ends_early_with_the_best_so_far) {
  Listed listed({{1, 0}, {1, 0}}, {{5, 1, {}}, {3, 1, {}}}, {1, 2});
  SearchLimits limits;
  limits.is_over = [&] { return !listed.order.empty(); };
  const Searched found = search(2, listed, limits);
  EXPECT_EQ(found.fit.front().candidate, 0U);
  EXPECT_THAT(found.left, ElementsAre(1));
}

// The candidate of least expected cost takes too long, and so do all in the end.
TEST(Search, begins_nothing_for_which_there_is_no_time) {
  Listed listed({{1, 0}, {1, 0}, {1, 0}}, {{3, 1, {}}, {5, 1, {}}, {4, 1, {}}}, {1, 2, 3});
  SearchLimits limits;
  limits.has_time = [&](size_t candidate) { return candidate > 0 && listed.order.empty(); };
  const Searched found = search(3, listed, limits);
  EXPECT_THAT(listed.order, ElementsAre(1));
  EXPECT_EQ(found.fit.front().candidate, 1U);
  EXPECT_THAT(found.left, ElementsAre(0, 2));
}

TEST(Search, ends_when_no_candidate_is_promising) {
  Listed listed({{0, 0}, {0, 0}, {0, 0}}, {{5, 1, {}}, {4, 1, {}}, {1, 1, {}}}, {2, 3, 6});
  SearchLimits limits;
  limits.promising = 1;
  const Searched found = search(3, listed, limits);
  EXPECT_THAT(listed.order, ElementsAre(0, 1));
  EXPECT_THAT(found.left, ElementsAre(2));
}

TEST(Search, goes_on_after_an_outcome_was_corrected) {
  Listed listed({{0, 0}, {4, 0}, {0, 0}}, {{3, 1, {}}, {5, 1, {}}, {6, 1, {}}}, {1, 2, 9});
  SearchLimits limits;
  limits.promising = 1;
  Searched found = search(3, listed, limits);
  EXPECT_THAT(found.too_slow, ElementsAre(1));
  found.fit.front().outcome.seconds = 7;
  found.left.push_back(1);
  found.too_slow.clear();
  search_on(found, listed, limits);
  EXPECT_THAT(listed.order, ElementsAre(0, 1));
  EXPECT_EQ(found.fit.front().candidate, 1U);
}

TEST(Search, prefers_less_memory_if_that_is_the_objective) {
  Listed listed({{0, 0}, {0, 0}, {0, 0}, {0, 6}}, {{1, 7, {}}, {2, 5, {}}, {1.5, 5, {}}, {9, 9, {}}}, {0, 1, 2, 3});
  const Searched found = search(4, listed, {Objective::bytes, 0});
  EXPECT_EQ(found.fit.front().candidate, 2U);
  EXPECT_THAT(found.too_slow, ElementsAre(3));
}

// Whatever costs are expected, and whatever bounds that hold.
TEST(Search, finds_what_an_exhaustive_search_finds) {
  std::mt19937 random(7);
  const auto within = [&](double most) { return std::uniform_real_distribution<double>(0, most)(random); };
  for (int round = 0; round < 300; ++round) {
    const auto objective = round % 2 == 0 ? Objective::seconds : Objective::bytes;
    const double limit = round % 3 == 0 ? 0 : within(1);
    std::vector<Outcome> outcomes;
    std::vector<Bounds> bounds;
    std::vector<double> expected;
    const Outcome* best = nullptr;
    for (int i = 0; i < 40; ++i) {
      outcomes.push_back({within(1), within(1), i % 7 == 3 ? "refused" : ""});
      bounds.push_back({within(outcomes.back().seconds), within(outcomes.back().bytes)});
      expected.push_back(within(1));
    }
    for (const Outcome& each : outcomes)
      if (each.refused.empty() && (limit == 0 || each.bytes <= limit))
        if (!best || is_better(each, *best, objective)) best = &each;
    Listed listed(bounds, outcomes, expected);
    const Searched found = search(outcomes.size(), listed, {objective, limit});
    ASSERT_EQ(found.fit.empty(), best == nullptr);
    if (best) {
      EXPECT_EQ(found.fit.front().candidate, static_cast<size_t>(best - outcomes.data()));
    }
    EXPECT_EQ(
        found.fit.size() + found.unfit.size() + found.refused.size() + found.too_large.size() + found.too_slow.size(),
        outcomes.size());
    EXPECT_THAT(found.left, IsEmpty());
  }
}

}  // namespace
}  // namespace tessera::plan
