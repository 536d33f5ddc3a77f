#include "tessera/kernels/cpu/library/teams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <numeric>
#include <thread>
#include <vector>

#include "tessera/kernels/cpu/library/gathered_team.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/sleeping_teams.h"

namespace tessera::kernels {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

constexpr int64_t kMuch = 64 * parallel_threshold;

TEST(Teams, SmallLoopsWakeNobody) {
  EXPECT_EQ(team_for(parallel_threshold - 1, 8), 1);
  EXPECT_EQ(team_for(kMuch, 1), 1);
}

// Other processes may come and go while this runs.
TEST(Teams, LargeLoopsGetTheWholeTeamUnlessOtherWorkLeavesOneCore) {
  for (int trial = 0; trial < 100; ++trial) {
    const bool shared_before = heed_other_work(8);
    const int team = team_for(kMuch, 8);
    if (shared_before || heed_other_work(8))
      EXPECT_THAT(team, testing::AnyOf(1, 8));
    else
      EXPECT_EQ(team, 8);
  }
}

TEST(Teams, NoTeamIsLargerThanScratchMemoryWasPlannedFor) {
  for (const int threads : {1, 2, 7})
    for (const int64_t work : {int64_t{0}, parallel_threshold - 1, parallel_threshold, kMuch})
      EXPECT_LE(team_for(work, threads), most_team_for(work, threads)) << work;
}

TEST(GatheredTeam, NeighboursShareTheCoreOfTheFirst) {
  EXPECT_THAT(gathered({0, 1}, {0, 1}, 1), ElementsAre(0, 0));
  EXPECT_THAT(gathered({1, 0}, {0, 1}, 1), ElementsAre(1, 1));
  EXPECT_THAT(gathered({0, 1, 2, 3}, {0, 1, 2, 3}, 2), ElementsAre(0, 0, 2, 2));
  EXPECT_THAT(gathered({3, 1, 2}, {1, 2, 3}, 1), ElementsAre(3, 3, 3));
  EXPECT_THAT(gathered({0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, 3), ElementsAre(0, 0, 2, 2, 4));
}

TEST(GatheredTeam, OthersOfTheTeamGetAnotherCore) {
  EXPECT_THAT(gathered({0, 1, 0, 1}, {0, 1, 2, 3}, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(gathered({5, 5, 5}, {4, 5, 6}, 3), ElementsAre(5, 4, 6));
  EXPECT_THAT(gathered({0, 0, 1, 1}, {0, 1, 2, 3}, 9), ElementsAre(0, 1, 2, 3));
}

TEST(GatheredTeam, MembersStayTogetherWhereNoCoreIsFree) {
  EXPECT_THAT(gathered({7, 7, 7, 7}, {7}, 2), ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(gathered({7, 8}, {}, 2), ElementsAre(7, 8));
  EXPECT_THAT(gathered({}, {0}, 2), ElementsAre());
}

#ifndef TESSERA_THREAD_SANITIZER  // libgomp is not instrumented

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The seconds that cores work while this thread sleeps for `pauses` times 2 ms, each after a loop of a team of two.
double seconds_in_pauses(int pauses) {
  double seconds = 0;
  std::atomic<int> members = 0;
  for (int i = 0; i < pauses; ++i) {
#pragma omp parallel num_threads(2)
    members.fetch_add(1);
    const double before = processor_seconds();
    std::this_thread::sleep_for(2ms);
    seconds += processor_seconds() - before;
  }
  return seconds;
}

// Counts the time of cores, which does not depend on other processes: a thread that spins takes all of a pause.
TEST(SleepingTeams, TeamsThatWaitUseNoCore) {
  constexpr int kPauses = 20;
  const SleepingTeams sleeping;
  bool slept = false;
  for (int trial = 0; trial < 100 && !slept; ++trial) slept = seconds_in_pauses(kPauses) < 0.1 * kPauses * 2e-3;
  EXPECT_TRUE(slept);
}

TEST(SleepingTeams, LoopsComputeWhatTheyComputedBefore) {
  std::vector<int64_t> items(100'000);
  const auto sum = [&] {
    std::fill(items.begin(), items.end(), 0);
    for_ranges(static_cast<int64_t>(items.size()), kMuch, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) items[static_cast<size_t>(i)] += i;
    });
    return std::accumulate(items.begin(), items.end(), int64_t{0});
  };
  const int64_t before = sum();
  for (int trial = 0; trial < 20; ++trial) {
    const SleepingTeams sleeping;  // comes and goes while other teams work
    for (int i = 0; i < 20; ++i) EXPECT_EQ(sum(), before);
  }
}

TEST(GatheredTeam, ThreadsMayStillUseAllTheirCores) {
  const auto cores_of_members = [] {
    std::vector<int> cores(3);
#pragma omp parallel num_threads(3)
    {
      cpu_set_t set;
      CPU_ZERO(&set);
      sched_getaffinity(0, sizeof set, &set);
      cores[static_cast<size_t>(omp_get_thread_num())] = CPU_COUNT(&set);
    }
    return cores;
  };
  const std::vector<int> before = cores_of_members();
  for (int cores : {1, 2, 3, 4}) gather_team(3, cores);
  EXPECT_EQ(cores_of_members(), before);
}

#endif

}  // namespace
}  // namespace tessera::kernels
