#include "tessera/forecast/communications.h"

#include <gtest/gtest.h>

namespace tessera::forecast {
namespace {

using bind::Phase;

// A rank makes the operand of an all-reduce in 1 s (step 0), which takes 4 s (step 1), and reads its result for 1 s
// (step 2). Another kernel of 3 s (step 3) depends on nothing. Times are in whole seconds.
class WaitsFor : public testing::Test {
 protected:
  WaitsFor() {
    sim::PredictedClass& rank = predicted_.classes.emplace_back();
    rank.needs = std::make_shared<std::vector<std::vector<int>>>(std::vector<std::vector<int>>{{}, {0}, {1}, {}});
    for (const double seconds : {1, 4, 1, 3}) rank.steps.push_back({seconds, true});
    rank.costs.resize(4);
    rank.costs[1].received = 64;
    predicted_.timeline.classes.emplace_back();
  }

  // In running order.
  void act(int task, Phase phase, double begin, double end, double moving = 0, double moved = 0,
           int queue = bind::kComputing, double shared = 0) {
    const int action = static_cast<int>(rank().actions.size());
    rank().actions.push_back({{task, phase}, queue});
    bind::StepInfo info;
    info.name = std::string(1, static_cast<char>('a' + task));
    info.op = task == 1 ? "AllReduce" : "Relu";
    info.communication = task == 1;
    info.axes = {"tp"};
    info.members = 2;
    if (phase == Phase::start) start_ = action;
    if (phase == Phase::wait) info.started = start_;
    infos_.push_back(info);
    predicted_.timeline.classes[0].events.push_back({action, begin, end, moving, moved, shared});
  }

  PredictedCommunication told() {
    rank().infos = std::make_shared<std::vector<bind::StepInfo>>(infos_);
    const std::vector<PredictedCommunication> all = communications_of(predicted_);
    EXPECT_EQ(all.size(), 1U);
    EXPECT_EQ(all.front().tensor, "b");
    EXPECT_EQ(all.front().kind, "all_reduce");
    EXPECT_EQ(all.front().bytes, 64);
    EXPECT_EQ(all.front().ms, 4e3);
    return all.front();
  }

  sim::PredictedClass& rank() { return predicted_.classes.front(); }

  sim::Predicted predicted_;
  std::vector<bind::StepInfo> infos_;
  int start_ = -1;
};

TEST_F(WaitsFor, what_no_operator_can_hide_and_what_the_order_does_not) {
  act(0, Phase::run, 0, 1);
  act(1, Phase::start, 1, 1);
  act(1, Phase::wait, 1, 5, 1, 5);
  act(2, Phase::run, 5, 6);
  act(3, Phase::run, 6, 9);
  const PredictedCommunication told = this->told();
  EXPECT_EQ(told.waits.no_work_ms, 1e3) << "step 3 is 3 s long";
  EXPECT_EQ(told.waits.order_ms, 3e3);
  EXPECT_EQ(told.waits.total_ms(), 4e3);
  EXPECT_EQ(told.hidden(), 0);
  EXPECT_TRUE(told.behind.empty());
}

TEST_F(WaitsFor, the_rest_of_what_a_kernel_hides) {
  act(0, Phase::run, 0, 1);
  act(1, Phase::start, 1, 1);
  act(3, Phase::run, 1, 4);
  act(1, Phase::wait, 4, 5, 1, 5);
  act(2, Phase::run, 5, 6);
  const PredictedCommunication told = this->told();
  EXPECT_EQ(told.waits.no_work_ms, 1e3);
  EXPECT_EQ(told.waits.total_ms(), 1e3);
  EXPECT_EQ(told.hidden(), 0.75);
  ASSERT_EQ(told.behind.size(), 1U);
  EXPECT_EQ(told.behind[0].name, "d");
  EXPECT_EQ(told.behind[0].ms, 3e3);
}

TEST_F(WaitsFor, a_late_peer_and_other_transfers) {
  act(0, Phase::run, 0, 1);
  act(1, Phase::start, 1, 1);
  act(3, Phase::run, 1, 4);
  act(1, Phase::wait, 4, 11, 6, 11, bind::kComputing,
      1);  // the other member starts at 6; others share the link for a second
  act(2, Phase::run, 11, 12);
  const PredictedCommunication told = this->told();
  EXPECT_EQ(told.waits.late_peer_ms, 2e3);
  EXPECT_EQ(told.waits.no_work_ms, 1e3);
  EXPECT_EQ(told.waits.busy_link_ms, 1e3);
  EXPECT_EQ(told.waits.order_ms, 3e3);
  EXPECT_EQ(told.exposed_ms(), 5e3);
}

TEST_F(WaitsFor, its_turn_in_the_queue_of_communications) {
  act(0, Phase::run, 0, 1);
  act(3, Phase::run, 1, 4);
  act(1, Phase::start, 5, 9, 5, 9, 1);  // the queue is busy until 5
  act(1, Phase::wait, 9, 9, 5, 9);
  act(2, Phase::run, 9, 10);
  const PredictedCommunication told = this->told();
  EXPECT_EQ(told.waits.busy_link_ms, 1e3);
  EXPECT_EQ(told.waits.no_work_ms, 1e3);
  EXPECT_EQ(told.waits.order_ms, 3e3);
}

// Before its operand is ready it could not start; after that, another buffer holds as much as there is.
TEST_F(WaitsFor, memory_where_an_earlier_start_would_exceed_it) {
  rank().buffers = {
      {100, 0, 0}, {100, 1, 1}, {40, 2, 4}, {10, -1, 0}, {10, 1, 5}};  // the last are an input and an output
  act(0, Phase::run, 0, 1);
  act(3, Phase::run, 1, 4);
  act(1, Phase::start, 4, 4);
  act(1, Phase::wait, 4, 8, 4, 8);
  act(2, Phase::run, 8, 9);
  EXPECT_EQ(told().waits.memory_ms, 3e3);
  EXPECT_EQ(told().waits.no_work_ms, 1e3);
  rank().buffers[1].bytes = 60;  // now there is room
  EXPECT_EQ(told().waits.order_ms, 3e3);
  EXPECT_EQ(told().waits.memory_ms, 0);
}

// Memory keeps it behind the first 2 s of kernels (step 3). A start before the last second (step 4) would fit.
TEST_F(WaitsFor, memory_no_longer_than_an_earlier_start_would_gain) {
  rank().steps.push_back({1, true});
  rank().costs.resize(5);
  rank().needs = std::make_shared<std::vector<std::vector<int>>>(std::vector<std::vector<int>>{{}, {0}, {1}, {}, {}});
  rank().steps[3].seconds = 2;
  rank().buffers = {{100, 1, 1}, {40, 3, 4}};
  act(0, Phase::run, 0, 1);
  act(3, Phase::run, 1, 3);
  act(4, Phase::run, 3, 4);
  act(1, Phase::start, 4, 4);
  act(1, Phase::wait, 4, 8, 4, 8);
  act(2, Phase::run, 8, 9);
  EXPECT_EQ(told().waits.no_work_ms, 1e3);
  EXPECT_EQ(told().waits.order_ms, 1e3);
  EXPECT_EQ(told().waits.memory_ms, 2e3);
}

// A second of kernels is between the operand and the start, and as memory is full, no start could come before it. But
// the other 2 s of kernels come after the wait, and could come before it.
TEST_F(WaitsFor, the_order_of_kernels_behind_it_though_memory_is_full) {
  rank().steps.push_back({1, true});
  rank().costs.resize(5);
  rank().needs = std::make_shared<std::vector<std::vector<int>>>(std::vector<std::vector<int>>{{}, {0}, {1}, {}, {}});
  rank().steps[3].seconds = 2;
  rank().buffers = {{100, 1, 1}, {40, 2, 3}};
  act(0, Phase::run, 0, 1);
  act(4, Phase::run, 1, 2);
  act(1, Phase::start, 2, 2);
  act(1, Phase::wait, 2, 6, 2, 6);
  act(2, Phase::run, 6, 7);
  act(3, Phase::run, 7, 9);
  EXPECT_EQ(told().waits.no_work_ms, 1e3);
  EXPECT_EQ(told().waits.memory_ms, 1e3);
  EXPECT_EQ(told().waits.order_ms, 2e3);
}

// A kernel beside it makes the transfer slower, with nothing else on the link.
TEST_F(WaitsFor, nothing_on_the_link_where_a_kernel_slows_its_transfer) {
  act(0, Phase::run, 0, 1);
  act(1, Phase::start, 1, 1);
  act(3, Phase::run, 1, 4);
  act(1, Phase::wait, 4, 6, 1, 6);
  act(2, Phase::run, 6, 7);
  EXPECT_EQ(told().waits.busy_link_ms, 0);
  EXPECT_EQ(told().waits.no_work_ms, 2e3) << "3 s of kernels beside 5 s of transfer";
}

TEST_F(WaitsFor, all_of_it_where_ranks_transfer_while_they_wait) {
  predicted_.timeline.at_wait = true;
  act(0, Phase::run, 0, 1);
  act(1, Phase::start, 1, 1);
  act(3, Phase::run, 1, 4);
  act(1, Phase::wait, 4, 8, 4, 8);
  act(2, Phase::run, 8, 9);
  EXPECT_EQ(told().waits.no_work_ms, 4e3);
}

TEST_F(WaitsFor, nothing_in_a_program_that_does_nothing) {
  rank().buffers = {{100, -1, 0}};
  rank().infos = std::make_shared<std::vector<bind::StepInfo>>();
  rank().steps.clear();
  rank().needs = std::make_shared<std::vector<std::vector<int>>>();
  EXPECT_TRUE(communications_of(predicted_).empty());
}

// More than the 64 whose dependences are followed at once.
TEST(Communications, may_be_many) {
  constexpr int kMany = 100;
  sim::Predicted predicted;
  sim::PredictedClass& rank = predicted.classes.emplace_back();
  std::vector<std::vector<int>> needs;
  std::vector<bind::StepInfo> infos;
  predicted.timeline.classes.emplace_back();
  std::vector<sim::Event>& events = predicted.timeline.classes.front().events;
  for (int c = 0; c < kMany; ++c) {  // each is followed by a kernel of a second that depends on nothing
    needs.insert(needs.end(), 2, {});
    rank.steps.insert(rank.steps.end(), {{static_cast<double>(c), true}, {1, true}});
    for (const auto& [task, phase] :
         {std::pair(2 * c, Phase::start), std::pair(2 * c, Phase::wait), std::pair(2 * c + 1, Phase::run)}) {
      const int action = static_cast<int>(rank.actions.size());
      rank.actions.push_back({{task, phase}});
      bind::StepInfo& info = infos.emplace_back();
      info.op = phase == Phase::run ? "Relu" : "AllReduce";
      info.members = 2;
      if (phase == Phase::wait) info.started = action - 1;
      const double begin = events.empty() ? 0 : events.back().end;
      const double takes = phase == Phase::wait ? c : phase == Phase::run ? 1 : 0;
      events.push_back({action, begin, begin + takes, begin, begin + takes});
    }
  }
  rank.costs.resize(rank.steps.size());
  rank.needs = std::make_shared<std::vector<std::vector<int>>>(needs);
  rank.infos = std::make_shared<std::vector<bind::StepInfo>>(infos);
  const std::vector<PredictedCommunication> all = communications_of(predicted);
  ASSERT_EQ(all.size(), static_cast<size_t>(kMany));
  for (int c = 0; c < kMany; ++c) {
    EXPECT_EQ(all[c].waits.no_work_ms, 0) << "100 s of kernels depend on none of them";
    EXPECT_EQ(all[c].waits.order_ms, c * 1e3);
  }
}

}  // namespace
}  // namespace tessera::forecast
