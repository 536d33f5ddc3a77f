#include "tessera/launch/gather_times.h"

#include <gtest/gtest.h>

#include <thread>

#include "tessera/comm/communicator.h"

namespace tessera::launch {
namespace {

using runtime::RankTimes;

RankTimes::Clock::time_point at(int64_t nanoseconds) {
  return RankTimes::Clock::time_point(std::chrono::nanoseconds(nanoseconds));
}

/// A rank whose second step waits for what the first has started, twice.
RankTimes times_of(int rank) {
  RankTimes times;
  times.steps = std::make_shared<std::vector<runtime::StepInfo>>(std::vector<runtime::StepInfo>{
      {.name = "sum", .op = "AllReduce", .communication = true, .axes = {"tp"}, .leader = 0, .members = 2},
      {.name = "sum",
       .op = "AllReduce",
       .communication = true,
       .axes = {"tp"},
       .leader = 0,
       .members = 2,
       .started = 0},
      {.name = "y", .op = "Relu"}});
  times.begin = at(100 + rank);
  times.inputs = at(110 + rank);
  for (const size_t step : {0, 1, 0, 1, 2})
    times.done.push_back({step, at(120 + 10 * static_cast<int64_t>(step)), 64 * step});
  times.outputs = at(200 + rank);
  return times;
}

TEST(GatherTimes, gives_what_each_rank_has_noted) {
  const auto world = comm::make_local_world(2);
  std::vector<std::vector<RankTimes>> gathered(2);
  std::vector<std::thread> threads;
  for (int rank : {0, 1})
    threads.emplace_back([&, rank] { gathered[rank] = gather_times(*world, rank, times_of(rank)); });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<RankTimes>& all : gathered) {
    ASSERT_EQ(all.size(), 2u);
    for (int rank : {0, 1}) {
      const RankTimes &given = all[rank], expected = times_of(rank);
      EXPECT_EQ(given.begin, expected.begin);
      EXPECT_EQ(given.inputs, expected.inputs);
      EXPECT_EQ(given.outputs, expected.outputs);
      ASSERT_EQ(given.done.size(), expected.done.size());
      for (size_t e = 0; e < given.done.size(); ++e) {
        EXPECT_EQ(given.done[e].step, expected.done[e].step);
        EXPECT_EQ(given.done[e].end, expected.done[e].end);
        EXPECT_EQ(given.done[e].bytes, expected.done[e].bytes);
      }
      ASSERT_EQ(given.steps->size(), expected.steps->size());
      for (size_t s = 0; s < given.steps->size(); ++s) {
        const runtime::StepInfo &step = (*given.steps)[s], &own = (*expected.steps)[s];
        EXPECT_EQ(step.name, own.name);
        EXPECT_EQ(step.op, own.op);
        EXPECT_EQ(step.communication, own.communication);
        EXPECT_EQ(step.axes, own.axes);
        EXPECT_EQ(step.leader, own.leader);
        EXPECT_EQ(step.members, own.members);
        EXPECT_EQ(step.is_root, own.is_root);
        EXPECT_EQ(step.started, own.started);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::launch
