// Dealing out blocks, against all divisions of small chains.
#include "tessera/stages/deal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <tuple>

#include "tessera/stages/sums.h"

namespace tessera::stages {
namespace {

using testing::ElementsAre;

std::vector<Load> of_seconds(const std::vector<double>& seconds) {
  std::vector<Load> loads;
  for (double each : seconds) loads.push_back({each, 1, 1, 1});
  return loads;
}

Deal on_own_ranks(int64_t stages) {
  Deal deal{stages};
  for (int64_t s = 0; s < stages; ++s) deal.ranks_of.push_back(s);
  return deal;
}

// The least time, and the fewest bytes among the divisions that take so long; infinite if none keeps the memory.
std::pair<double, double> brute_force(const std::vector<Load>& loads, const Deal& deal) {
  const Sums sums(loads, deal);
  std::vector<std::pair<double, double>> all;
  std::vector<int64_t> ends(static_cast<size_t>(deal.stages));
  const std::function<void(int64_t, int64_t)> go = [&](int64_t stage, int64_t begin) {
    if (stage == deal.stages) {
      if (begin == sums.blocks()) all.emplace_back(sums.micro_batch(ends), sums.all_cuts(ends));
      return;
    }
    for (int64_t end = begin; end <= sums.blocks(); ++end) {
      if (!sums.fits(stage, begin, end)) break;
      ends[static_cast<size_t>(stage)] = end;
      go(stage + 1, end);
    }
  };
  go(0, 0);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double time = kNever, bytes = kNever;
  for (const auto& [taken, cuts] : all) time = std::min(time, taken);
  for (const auto& [taken, cuts] : all)
    if (taken <= time * (1 + kSameTime)) bytes = std::min(bytes, cuts);
  return {time, bytes};
}

std::pair<double, double> of_dealt(const std::vector<Load>& loads, const Deal& deal, const Dealt& dealt) {
  const Sums sums(loads, deal);
  std::vector<int64_t> ends;
  for (int64_t count : dealt.counts) ends.push_back((ends.empty() ? 0 : ends.back()) + count);
  return {sums.micro_batch(ends), sums.all_cuts(ends)};
}

// Chains of up to 9 blocks, some with equal times, on ranks of one stage or several.
struct Chance {
  std::vector<Load> loads;
  Deal deal;
};

Chance by_chance(std::mt19937& random, bool single) {
  const auto below = [&](int bound) { return static_cast<int64_t>(random() % static_cast<unsigned>(bound)); };
  Chance made;
  for (int64_t left = 1 + below(9); left > 0; --left)
    made.loads.push_back({static_cast<double>(1 + below(6)), static_cast<double>(below(5)),
                          static_cast<double>(below(4)), static_cast<double>(1 + below(3))});
  made.deal.stages = single ? 1 + below(5) : 2 * (1 + below(3));
  for (int64_t s = 0; s < made.deal.stages; ++s) {
    const int64_t ranks = single ? made.deal.stages : made.deal.stages / 2;
    const bool v = made.loads.size() % 2 == 0;
    made.deal.ranks_of.push_back(s < ranks ? s : v ? made.deal.stages - 1 - s : s - ranks);
    if (s < ranks && made.loads.size() % 3 == 0) made.deal.speeds.push_back(static_cast<double>(1 << below(3)));
  }
  if (!single && below(2) == 0) made.deal.fill = static_cast<double>(1 + below(3)) / 2;
  if (below(2) == 0)
    for (int64_t s = 0; s < made.deal.stages; ++s) {
      made.deal.memory.push_back(static_cast<double>(6 + below(20)));
      made.deal.in_flight.push_back(static_cast<double>(made.deal.stages - s));
    }
  return made;
}

void compare_with_brute_force(bool single) {
  constexpr unsigned kSeed = 20261129;
  constexpr int kCases = 400;
  std::mt19937 random(kSeed);
  int possible = 0;
  for (int i = 0; i < kCases; ++i) {
    const Chance chance = by_chance(random, single);
    const Dealt dealt = deal_out(chance.loads, chance.deal);
    const auto [time, bytes] = brute_force(chance.loads, chance.deal);
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", case " << i);
    if (dealt.counts.empty()) {
      EXPECT_EQ(time, std::numeric_limits<double>::infinity());
      continue;
    }
    ++possible;
    EXPECT_TRUE(dealt.best);
    const auto [own_time, own_bytes] = of_dealt(chance.loads, chance.deal, dealt);
    EXPECT_NEAR(own_time, time, 1e-9 * time);
    EXPECT_EQ(own_bytes, bytes);
  }
  EXPECT_GT(possible, kCases / 2);
}

TEST(Deal, equals_brute_force_with_a_stage_on_each_rank) {
  compare_with_brute_force(true);
}

TEST(Deal, equals_brute_force_with_two_stages_on_each_rank) {
  compare_with_brute_force(false);
}

// A V whose last block is slower: without filling, its rank would get nothing else.
TEST(Deal, keeps_stages_even_where_they_fill_the_pipeline) {
  Deal deal{4, {0, 1, 1, 0}};
  const std::vector<Load> loads = of_seconds({4, 4, 4, 5});
  EXPECT_THAT(deal_out(loads, deal).counts, ElementsAre(0, 0, 2, 2));
  deal.fill = 0.5;
  EXPECT_THAT(deal_out(loads, deal).counts, ElementsAre(1, 1, 1, 1));
}

TEST(Deal, gives_heavy_ends_fewer_blocks) {
  EXPECT_THAT(deal_out(of_seconds({5, 2, 2, 2, 2, 5}), on_own_ranks(4)).counts, ElementsAre(1, 2, 2, 1));
}

TEST(Deal, leaves_the_last_stages_empty_if_there_are_too_few_blocks) {
  EXPECT_THAT(deal_out(of_seconds({2, 2}), on_own_ranks(4)).counts, ElementsAre(1, 1, 0, 0));
}

TEST(Deal, gives_a_slow_rank_less) {
  Deal deal = on_own_ranks(3);
  deal.speeds = {1, 2, 1};
  EXPECT_THAT(deal_out(of_seconds({1, 1, 1, 1}), deal).counts, ElementsAre(1, 2, 1));
}

// The first stage holds more micro-batches, so it gets fewer blocks than would take the least time.
TEST(Deal, keeps_the_memory_of_each_stage) {
  Deal deal = on_own_ranks(2);
  deal.in_flight = {4, 1};
  deal.memory = {10, 10};
  EXPECT_THAT(deal_out(of_seconds({1, 1, 1, 1, 1, 1}), deal).counts, ElementsAre(2, 4));
  deal.memory = {4, 10};
  EXPECT_THAT(deal_out(of_seconds({1, 1, 1, 1, 1, 1}), deal).counts, testing::IsEmpty());
}

// A head that takes 2.5 layers: with four layers for each rank the last one would take 6.5.
TEST(Deal, finds_the_best_division_of_many_layers_among_two_stages_on_each_rank) {
  std::vector<double> seconds(32, 1.0);
  seconds.back() += 2.5;
  for (bool v : {false, true}) {
    Deal deal{16};
    for (int64_t s = 0; s < deal.stages; ++s) deal.ranks_of.push_back(s < 8 ? s : v ? 15 - s : s - 8);
    deal.fill = 0.5;
    const std::vector<Load> loads = of_seconds(seconds);
    const Dealt dealt = deal_out(loads, deal);
    EXPECT_TRUE(dealt.best);
    EXPECT_EQ(of_dealt(loads, deal, dealt).first, 5 + 0.5 * 3.5);
  }
}

// With layers alike, a loop of four stages on each of eight ranks is dealt out evenly, and the search ends at once.
TEST(Deal, divides_many_alike_layers_among_interleaved_stages) {
  Deal deal{32};
  for (int64_t s = 0; s < deal.stages; ++s) deal.ranks_of.push_back(s % 8);
  const Dealt dealt = deal_out(of_seconds(std::vector<double>(96, 1.0)), deal);
  EXPECT_TRUE(dealt.best);
  EXPECT_EQ(of_dealt(of_seconds(std::vector<double>(96, 1.0)), deal, dealt).first, 12);
}

}  // namespace
}  // namespace tessera::stages
