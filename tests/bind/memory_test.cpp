#include "tessera/bind/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tessera::bind {
namespace {

TEST(MemoryPlan, OfNothingIsEmpty) {
  EXPECT_EQ(plan_memory({}).bytes, 0u);
}

TEST(MemoryPlan, TellsWhatIsAliveWhereMostIs) {
  EXPECT_TRUE(alive_at_peak({}).empty());
  // 100 and 30 meet in action 1; 100 and 20 in action 2; 90 and 60 in action 4.
  EXPECT_EQ(alive_at_peak({{100, 0, 2}, {30, 1, 1}, {20, 2, 3}, {90, 4, 6}, {60, 4, 4}}), (std::vector<size_t>{3, 4}));
  EXPECT_EQ(alive_at_peak({{100, 0, 2}, {30, 1, 1}, {20, 2, 3}}), (std::vector<size_t>{0, 1}));
  EXPECT_EQ(alive_at_peak({{10, -1, 7}, {5, 3, 3}}), (std::vector<size_t>{0, 1}));
}

TEST(MemoryPlan, ReusesWhatHasEnded) {
  MemoryPlan plan = plan_memory({{1000, 0, 1}, {1000, 2, 3}, {1000, 4, 4}});
  EXPECT_EQ(plan.bytes, 1024u);
}

// Both ends of a life are included: an operand must survive the step that reads it.
TEST(MemoryPlan, KeepsWhatMeetsInOneStepApart) {
  MemoryPlan plan = plan_memory({{64, 0, 1}, {64, 1, 2}});
  EXPECT_NE(plan.offsets[0], plan.offsets[1]);
}

TEST(MemoryPlan, FillsGapsWithSmallBuffers) {
  // Two large ones alive at different ends leave room beside the middle one.
  MemoryPlan plan = plan_memory({{1024, 0, 9}, {512, 0, 4}, {512, 5, 9}});
  EXPECT_EQ(plan.bytes, 1536u);
}

TEST(MemoryPlan, NeverOverlapsLivesAndIsNeverWorseThanNoReuse) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 engine(seed);
    auto number = [&](int low, int high) { return std::uniform_int_distribution(low, high)(engine); };
    std::vector<Lifetime> lives(static_cast<size_t>(number(1, 60)));
    for (Lifetime& life : lives) {
      life.bytes = static_cast<size_t>(number(0, 5) ? number(1, 5000) : 0);
      life.first = number(0, 30);
      life.last = life.first + number(0, 10);
    }
    MemoryPlan plan = plan_memory(lives);
    ASSERT_EQ(plan.offsets.size(), lives.size());
    size_t sum = 0, busiest = 0;
    for (size_t i = 0; i < lives.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % 64, 0u);
      EXPECT_LE(plan.offsets[i] + lives[i].bytes, plan.bytes);
      sum += (lives[i].bytes + 63) / 64 * 64;
      for (size_t j = 0; j < i; ++j) {
        bool together = lives[i].first <= lives[j].last && lives[j].first <= lives[i].last;
        bool overlap =
            plan.offsets[i] < plan.offsets[j] + lives[j].bytes && plan.offsets[j] < plan.offsets[i] + lives[i].bytes;
        EXPECT_FALSE(together && overlap) << i << " and " << j;
      }
    }
    for (int step = 0; step <= 40; ++step) {
      size_t alive = 0;
      for (const Lifetime& life : lives)
        if (life.first <= step && step <= life.last) alive += life.bytes;
      busiest = std::max(busiest, alive);
    }
    EXPECT_LE(plan.bytes, sum);
    EXPECT_GE(plan.bytes, busiest);
  }
}

// Short lives among many actions, and a few long ones: the first buffer by size is at 0, each other one at the lowest
// offset that those before it leave.
TEST(MemoryPlan, PlacesEachBufferAtTheLowestOffsetThatIsFree) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 engine(seed);
    const auto number = [&](int low, int high) { return std::uniform_int_distribution(low, high)(engine); };
    std::vector<Lifetime> lives(200);
    for (Lifetime& life : lives) {
      life.bytes = 64 * static_cast<size_t>(number(1, 20));
      life.first = number(-1, 2000);
      life.last = life.first + number(0, number(0, 4) ? 20 : 1500);
    }
    std::stable_sort(lives.begin(), lives.end(),
                     [](const Lifetime& a, const Lifetime& b) { return a.bytes > b.bytes; });
    const std::vector<size_t> offsets = plan_memory(lives).offsets;
    for (size_t i = 0; i < lives.size(); ++i) {
      const auto is_free = [&](size_t offset) {
        for (size_t j = 0; j < i; ++j)
          if (lives[i].first <= lives[j].last && lives[j].first <= lives[i].last &&
              offset < offsets[j] + lives[j].bytes && offsets[j] < offset + lives[i].bytes)
            return false;
        return true;
      };
      size_t lowest = 0;
      while (!is_free(lowest)) lowest += 64;
      ASSERT_EQ(offsets[i], lowest) << i;
    }
  }
}

}  // namespace
}  // namespace tessera::bind
