// Questions about runs whose answers are known, because the runs are simulated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.h"
#include "tessera/what_if.h"
#include "tessera/whatif/answer.h"
#include "tessera/whatif/statistics.h"
#include "whatif/recorded.h"

namespace tessera::whatif {
namespace {

using test::error_of;
using testing::AllOf;
using testing::HasSubstr;
using Overlap = WhatIfChanges::Overlap;

struct Case {
  std::string mesh, presets;
};
const std::vector<Case> kCases = {{"tp=2", "megatron"}, {"dp=2,tp=2", "dp+megatron"}, {"tp=3", "megatron"}};

// Calls `test` for runs of each way to communicate on several meshes.
void on_each(const std::function<void(const Recorded&, const Way&)>& test) {
  for (const Way& way : kWays)
    for (const Case& each : kCases) {
      SCOPED_TRACE(fmt::format("{} on {}, {} {}", way.engine, way.device, each.mesh, each.presets));
      test(recorded(way, each.mesh, each.presets), way);
    }
}

// The time of the run with other times of its steps, as the simulator has it.
double simulated_with(const Recorded& made, const Way& way,
                      const std::function<void(sim::ClassProgram&, size_t step)>& change) {
  const Mesh& mesh = made.run.programs->mesh();
  sim::PredictOptions options;
  options.machine = &made.machine;
  options.topology = made.machine.topology(mesh);
  options.engine = way.engine;
  const sim::RankClasses ranks = sim::single_ranks(mesh.size());
  sim::Workload workload = sim::priced(mesh, ranks, sim::planned(made.run, ranks, way.device), {}, options);
  for (sim::ClassProgram& program : workload.programs)
    for (size_t s = 0; s < program.seconds.size(); ++s) change(program, s);
  return sim::simulated(std::move(workload), mesh, options).timeline.seconds;
}

const std::string& op_of(const sim::ClassProgram& program, size_t step) {
  return program.machine->steps[step]->info.op;
}

TEST(WhatIf, ARunIsRepeatedWithItsOwnTimes) {
  on_each([](const Recorded& made, const Way&) {
    const WhatIf answer = whatif::answer(made.trace, {});
    EXPECT_EQ(answer.runs, 1);
    EXPECT_NEAR(answer.replay_error, 0, 0.005);
    EXPECT_NEAR(answer.step_ms, made.simulated.timeline.seconds * 1e3, 1e-9);
  });
}

TEST(WhatIf, AnOperatorOfAnotherSpeedChangesTheRunAsItWouldBe) {
  for (double factor : {0.25, 4.0})
    on_each([&](const Recorded& made, const Way& way) {
      WhatIfChanges changes;
      changes.scale_operators = {{"Mat*", factor}};
      const double truth = simulated_with(made, way, [&](sim::ClassProgram& program, size_t step) {
        if (op_of(program, step).starts_with("Mat")) program.seconds[step] *= factor;
      });
      EXPECT_NEAR(whatif::answer(made.trace, changes).step_ms, truth * 1e3, truth * 20);
    });
}

TEST(WhatIf, ALinkOfAnotherBandwidthChangesTheRunAsItWouldBe) {
  for (double factor : {0.5, 4.0})
    on_each([&](const Recorded& made, const Way& way) {
      MachineModel other = made.machine;
      other.links[0].bandwidth *= factor;
      const double before = made.simulated.timeline.seconds * 1e3;
      const double truth = predicted(made.run, other, way.engine).timeline.seconds * 1e3;
      WhatIfChanges changes;
      changes.scale_links = {{"near", factor}};
      EXPECT_NEAR(whatif::answer(made.trace, changes).step_ms - before, truth - before,
                  std::max(0.2 * std::abs(truth - before), 0.02 * before));
    });
}

// Of links without latency, where each transfer is seen to end. (Line tests how latency shows in sizes.)
TEST(WhatIf, WithoutATopologyTheEngineIsTheLink) {
  for (double factor : {0.5, 4.0})
    for (const Way& way : {kWays[0], kWays[1]}) {
      SCOPED_TRACE(way.engine);
      const Recorded made = recorded(way, "tp=2", "megatron", false, 0);
      MachineModel other = made.machine;
      other.links[0].bandwidth *= factor;
      const double before = made.simulated.timeline.seconds * 1e3;
      const double truth = predicted(made.run, other, way.engine).timeline.seconds * 1e3;
      WhatIfChanges changes;
      changes.scale_links = {{way.engine, factor}};
      EXPECT_NEAR(whatif::answer(made.trace, changes).step_ms - before, truth - before,
                  std::max(0.2 * std::abs(truth - before), 0.02 * before));
    }
}

TEST(WhatIf, WhatIsDroppedTakesNoTimeAndWaitsForNobody) {
  on_each([](const Recorded& made, const Way& way) {
    WhatIfChanges changes;
    changes.drop = {"Softmax"};
    const double truth = simulated_with(made, way, [](sim::ClassProgram& program, size_t step) {
      if (op_of(program, step) == "Softmax") program.seconds[step] = 0;
    });
    EXPECT_NEAR(whatif::answer(made.trace, changes).step_ms, truth * 1e3, truth * 20);
    changes.drop = {"AllReduce"};
    const WhatIf silent = whatif::answer(made.trace, changes);
    EXPECT_EQ(silent.after.exposed_ms, 0);
    EXPECT_NEAR(silent.after.step_ms, silent.after.computation_ms, 1e-6);
  });
}

TEST(WhatIf, AnInsertedOperatorDelaysAllThatNeedTheOneBeforeIt) {
  on_each([](const Recorded& made, const Way& way) {
    WhatIfChanges changes;
    changes.insert = {{"MatMul", 0.5}};
    const double truth = simulated_with(made, way, [](sim::ClassProgram& program, size_t step) {
      if (op_of(program, step) == "MatMul") program.seconds[step] += 0.5e-3;
    });
    const WhatIf answer = whatif::answer(made.trace, changes);
    EXPECT_NEAR(answer.step_ms, truth * 1e3, truth * 20);
    const auto inserted = std::find_if(answer.after.chain.begin(), answer.after.chain.end(),
                                       [](const ChainPart& part) { return part.op == "inserted"; });
    ASSERT_NE(inserted, answer.after.chain.end());
    EXPECT_NEAR(inserted->ms, 0.5 * static_cast<double>(inserted->count), 1e-6);
  });
}

TEST(WhatIf, OverlapOffIsTheProgramThatDoesNotOverlap) {
  on_each([](const Recorded& made, const Way& way) {
    runtime::DryRun run = made.run;
    run.options.overlap = false;
    const double truth = predicted(run, made.machine, way.engine).timeline.seconds * 1e3;
    WhatIfChanges changes;
    changes.overlap = Overlap::off;
    const WhatIf answer = whatif::answer(made.trace, changes);
    // What was not seen to end may take as long as until its wait.
    const double most = answer.hidden == 0 ? 1.02 : 1.15;
    EXPECT_GE(answer.step_ms, 0.98 * truth);
    EXPECT_LE(answer.step_ms, most * truth);
  });
}

TEST(WhatIf, PerfectOverlapIsTheBound) {
  on_each([](const Recorded& made, const Way&) {
    WhatIfChanges changes;
    changes.overlap = Overlap::perfect;
    const WhatIf answer = whatif::answer(made.trace, changes);
    EXPECT_NEAR(answer.step_ms, made.simulated.timeline.bound() * 1e3, 0.02 * answer.step_ms);
    EXPECT_LE(answer.step_ms, answer.measured_ms * 1.000001);
  });
}

TEST(WhatIf, ChangesCombine) {
  const Recorded made = recorded(kWays[0], "tp=2", "megatron");
  WhatIfChanges changes;
  changes.scale_operators = {{"MatMul", 0}};
  changes.drop = {"AllReduce", "Softmax"};
  changes.insert = {{"*Gelu", 1}, {"*Gelu", 2}};
  const WhatIf answer = whatif::answer(made.trace, changes);
  EXPECT_LT(answer.after.exposed_ms, 1e-9);
  EXPECT_GT(answer.after.compute_ms, 3);
}

// The measured time of the trace is that of its median run; noise of others does not matter.
TEST(WhatIf, SeveralRunsAnswerByTheirMedian) {
  Recorded made = recorded(kWays[0], "tp=2", "megatron");
  const double seconds = made.trace.runs[0].seconds;
  RecordedRun slow = made.trace.runs[0];
  for (RecordedRun::Rank& rank : slow.ranks)
    for (RecordedEvent& event : rank.events)
      for (double* time : {&event.begin, &event.end, &event.complete}) *time *= 3;
  for (RecordedRun::Rank& rank : slow.ranks) rank.end *= 3;
  slow.seconds *= 3;
  made.trace.runs = {slow, made.trace.runs[0], made.trace.runs[0]};
  const WhatIf answer = whatif::answer(made.trace, {});
  EXPECT_EQ(answer.runs, 3);
  EXPECT_NEAR(answer.step_ms, seconds * 1e3, 1e-6);
}

TEST(WhatIf, AnotherProgramTakesTheRecordedTimesAndAMachineForOthers) {
  const Recorded made = recorded(kWays[0], "tp=2", "megatron", false);
  // The same program needs nothing else.
  const WhatIf same = whatif::answer(made.trace, {}, made.run, std::nullopt, {});
  EXPECT_NEAR(same.step_ms, made.simulated.timeline.seconds * 1e3, 0.02 * same.step_ms);
  EXPECT_EQ(same.after.extrapolated, 0);
  EXPECT_NEAR(same.replay_error, 0, 0.02) << "its copies, too";
  // More ranks have kernels of other shapes.
  const runtime::DryRun wider = dry_run("tp=4", "megatron");
  EXPECT_THAT(error_of([&] { whatif::answer(made.trace, {}, wider, std::nullopt, {}); }),
              AllOf(HasSubstr("trace.json has no times for"), HasSubstr("give `machine` to compute them")));
  const double truth = predicted(wider, made.machine, "threads").timeline.seconds * 1e3;
  const WhatIf answer =
      whatif::answer(made.trace, {}, wider, made.machine, made.machine.topology(wider.programs->mesh()));
  EXPECT_NEAR(answer.step_ms, truth, 0.02 * truth);
  EXPECT_GT(answer.after.extrapolated, 0.1);
  WhatIfChanges changes;
  changes.scale_operators = {{"MatMul", 2}};
  EXPECT_GT(
      whatif::answer(made.trace, changes, wider, made.machine, made.machine.topology(wider.programs->mesh())).step_ms,
      answer.step_ms);
}

// What the recording took longer than its medians is laid to what goes on beside each other.
TEST(WhatIf, AnotherProgramIsDisturbedAsFarAsItOverlaps) {
  Recorded made = recorded(kWays[1], "tp=2", "megatron");
  runtime::DryRun plain = made.run;
  plain.options.overlap = false;
  const auto step_ms = [&](const runtime::DryRun& other) {
    return whatif::answer(made.trace, {}, other, std::nullopt, {}).step_ms;
  };
  const double undisturbed = step_ms(plain), seconds = made.simulated.timeline.seconds;
  made.trace.runs[0].seconds = 1.2 * seconds;
  EXPECT_NEAR(step_ms(made.run), 1.2e3 * seconds, 12 * seconds);
  EXPECT_NEAR(step_ms(plain), undisturbed, 1e-6);
}

TEST(WhatIf, APatternOrALinkThatTheTraceLacksIsNamedWithWhatThereIs) {
  const Recorded made = recorded(kWays[0], "tp=2", "megatron");
  const auto mistake = [&](const WhatIfChanges& changes) {
    return error_of([&] { whatif::answer(made.trace, changes); });
  };
  EXPECT_THAT(mistake({.scale_operators = {{"MatMull", 2}}}),
              AllOf(HasSubstr("trace.json has no operator 'MatMull'; did you mean 'MatMul'"), HasSubstr("Softmax")));
  EXPECT_THAT(mistake({.drop = {"Dropout*"}}), HasSubstr("no operator 'Dropout*'"));
  EXPECT_THAT(mistake({.insert = {{"Conv", 1}}}), HasSubstr("no operator 'Conv'"));
  EXPECT_THAT(mistake({.scale_links = {{"dcn", 2}}}),
              HasSubstr("no communication of trace.json uses links 'dcn'; its links are: near"));
  const Recorded alone = recorded(kWays[0], "tp=1", "none");
  EXPECT_THAT(error_of([&] {
                whatif::answer(alone.trace, {.scale_links = {{"near", 2}}});
              }),
              HasSubstr("has no communication"));
}

TEST(WhatIf, ARecordingIsReadAsItWasWritten) {
  on_each([](const Recorded& made, const Way&) {
    const Json json = to_json(made.trace.recording);
    EXPECT_EQ(to_json(from_json(json, "trace.json")), json);
  });
}

TEST(Line, FindsAFixedPartAndASlope) {
  const Line line = line_through({{100, 2}, {200, 3}, {300, 4}});
  EXPECT_NEAR(line.fixed, 1, 1e-9);
  EXPECT_NEAR(line.slope, 0.01, 1e-9);
  EXPECT_EQ(line_through({{100, 2}, {100, 4}}).fixed, 0);
  EXPECT_EQ(line_through({{100, 1}, {200, 4}}).fixed, 0) << "never below 0";
  EXPECT_EQ(line_through({{100, 4}, {200, 1}}).slope, 0);
  EXPECT_EQ(line_through({}).at(100), 0);
}

}  // namespace
}  // namespace tessera::whatif
