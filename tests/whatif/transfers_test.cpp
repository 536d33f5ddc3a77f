// What transfers take alone, from runs that are written down by hand.
#include "tessera/whatif/transfers.h"

#include <gtest/gtest.h>

#include "tessera/whatif/answer.h"
#include "tessera/whatif/workloads.h"
#include "whatif/hand_made.h"
#include "whatif/recorded.h"

namespace tessera::whatif {
namespace {

using bind::Action;
using bind::Phase;

// Three all-reduces that start one after the other and are waited for in their order.
const std::vector<Action> kThree = {{0, Phase::start}, {1, Phase::start}, {2, Phase::start},
                                    {0, Phase::wait},  {1, Phase::wait},  {2, Phase::wait}};

TEST(Transfers, TimesThatContainOthersAreDividedByWhatEachTakes) {
  const HandMade made({1'000'000, 1'000'000, 2'000'000}, kThree);
  const std::vector<Wait> waits = {{3, 0, 2, 10}, {4, 1, 25, 25}, {5, 2, 25, 40}};
  const std::vector<Moved> all = transfers_of(made.recording, run_of_waits({waits, waits}));
  const std::vector<double> found = milliseconds(all, 0);
  EXPECT_NEAR(found[0], 10, 0.01);
  EXPECT_NEAR(found[1], 10, 0.1);
  EXPECT_NEAR(found[2], 20, 0.1);
  EXPECT_EQ(found, milliseconds(all, 1));
  EXPECT_FALSE(all[0].hidden);
  EXPECT_TRUE(all[1].hidden);
}

// Neither is a wait for which a thread was disturbed.
TEST(Transfers, ALinkThatHadNothingToMoveIsNotCounted) {
  const HandMade made({1'000'000, 1'000'000, 1'000'000}, kThree);
  const std::vector<Wait> waits = {{3, 0, 50, 51}, {4, 100, 100, 110}, {5, 101, 110, 120}};
  const std::vector<double> found = milliseconds(transfers_of(made.recording, run_of_waits({waits, waits})), 0);
  for (double each : found) EXPECT_NEAR(each, 10, 0.1);
}

// Also a copy of the result in the wait is no sign of its end.
TEST(Transfers, TheRankThatWaitedSawTheEndForAll) {
  const HandMade made({1'000'000, 1'000'000, 1'000'000}, kThree);
  const std::vector<Wait> waits = {{3, 0, 1, 10}, {4, 1, 10, 20}, {5, 30, 30, 40}};
  const std::vector<Wait> late = {{3, 0, 35, 35.3}, {4, 1, 36, 36.3}, {5, 30, 39, 40}};
  const std::vector<Moved> all = transfers_of(made.recording, run_of_waits({waits, late}));
  for (size_t rank : {0, 1})
    for (double each : milliseconds(all, rank)) EXPECT_NEAR(each, 10, 0.1);
  for (const Moved& moved : all) EXPECT_FALSE(moved.hidden);
}

// Three kernels of 10 ms, each before an all-reduce of 30 ms that the others hide.
struct Backward {
  HandMade made{{0, 3'000'000, 0, 3'000'000, 0, 3'000'000},
                {{0, Phase::run},
                 {1, Phase::start},
                 {2, Phase::run},
                 {3, Phase::start},
                 {4, Phase::run},
                 {5, Phase::start},
                 {1, Phase::wait},
                 {3, Phase::wait},
                 {5, Phase::wait}}};

  double beside = 10;  // ms of a kernel while an all-reduce is under way

  sim::ClassProgram program() const {
    sim::ClassProgram program;
    program.machine = made.recording.ranks[0].machine;
    for (const auto& step : program.machine->steps) {
      const double kernel = program.seconds.empty() ? 10 : beside;
      program.seconds.push_back(step->info.communication ? 0 : kernel * kMilli);
      sim::Transfer& transfer = program.transfers.emplace_back();
      if (step->info.communication) transfer = {30 * kMilli, 3e6, false, {"gloo"}};
    }
    return program;
  }

  sim::Predicted simulated() const {
    sim::Workload workload;
    workload.ranks = sim::single_ranks(2);
    workload.programs.assign(2, program());
    workload.programs[1].rank = 1;
    workload.steps.resize(2);
    sim::PredictOptions options;
    const MachineModel machine = round_machine(MachineModel::Progress::background);
    options.machine = &machine;
    options.engine = "gloo";
    return sim::simulated(std::move(workload), made.recording.mesh, options);
  }

  RecordedTrace trace() const {
    RecordedTrace trace;
    trace.source = "trace.json";
    trace.recording = made.recording;
    trace.runs = {run_of(simulated())};
    return trace;
  }
};

TEST(Transfers, OfAGroupMoveOneAfterTheOther) {
  std::vector<double> ends;
  const sim::Predicted found = Backward().simulated();
  for (const sim::Event& event : found.timeline.classes[0].events)
    if (found.classes[0].actions[static_cast<size_t>(event.action)].action.phase == Phase::wait)
      ends.push_back(event.end / kMilli);
  ASSERT_EQ(ends.size(), 3U);
  EXPECT_NEAR(ends[0], 40, 1e-6);
  EXPECT_NEAR(ends[1], 70, 1e-6);
  EXPECT_NEAR(ends[2], 100, 1e-6);
}

TEST(Transfers, ThatQueuedTakeTheirOwnTimeInAnotherOrder) {
  const RecordedTrace trace = Backward().trace();
  WhatIfChanges changes;
  EXPECT_NEAR(answer(trace, changes).step_ms, 100, 0.01);
  changes.overlap = WhatIfChanges::Overlap::off;
  EXPECT_NEAR(answer(trace, changes).step_ms, 3 * (10 + 30), 0.1);
  changes = {};
  changes.scale_links = {{"gloo", 0.5}};
  EXPECT_NEAR(answer(trace, changes).step_ms, 10 + 3 * 60, 0.1);
  changes.scale_links = {{"gloo", 3}};
  EXPECT_NEAR(answer(trace, changes).step_ms, 3 * 10 + 10, 0.1);
}

TEST(Transfers, NoLongerDisturbKernelsThatTheyAreNotBeside) {
  Backward disturbed;
  disturbed.beside = 15;
  const RecordedTrace trace = disturbed.trace();
  WhatIfChanges changes;
  changes.overlap = WhatIfChanges::Overlap::off;
  EXPECT_NEAR(answer(trace, changes).step_ms, 3 * (10 + 30), 0.1);
  changes = {};
  changes.scale_links = {{"gloo", 10}};
  EXPECT_NEAR(answer(trace, changes).step_ms, 10 + 15 + 15 + 3, 0.1) << "they still do";
}

TEST(Transfers, BucketsCopyTheirOperandsAndResults) {
  const Backward backward;
  sim::Workload workload;
  workload.programs = {backward.program()};
  auto works = std::make_shared<std::vector<bind::StepWork>>(6);
  (*works)[3].joined = true;
  MachineModel machine = round_machine(MachineModel::Progress::background);  // a byte takes a nanosecond
  const std::vector<sim::ClassWork> classes = {{backward.made.recording.ranks[0].machine, works}};
  add_bucket_copies(workload, classes, machine, 2, false);
  const sim::ClassProgram& program = workload.programs[0];
  double seconds = 0;
  std::vector<std::string> ops;
  for (const bind::Enqueued& it : *program.machine->actions)
    if (it.action.phase == Phase::run) {
      seconds += program.seconds[static_cast<size_t>(it.action.task)];
      ops.push_back(program.machine->steps[static_cast<size_t>(it.action.task)]->info.op);
    }
  // 3 MB are read and written before it, and after it, while another rank does the same.
  EXPECT_NEAR(seconds / kMilli, 30 + 6 + 2 * 6, 1e-6);
  EXPECT_EQ(ops, (std::vector<std::string>{"MatMul", "MatMul", "AllReduce", "MatMul", "AllReduce"}));
}

}  // namespace
}  // namespace tessera::whatif
