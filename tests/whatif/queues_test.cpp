// Devices with several queues of communications: what is recorded of them, and what their transfers take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.h"
#include "tessera/whatif/answer.h"
#include "tessera/whatif/changes.h"
#include "tessera/whatif/programs.h"
#include "tessera/whatif/sharing.h"
#include "tessera/whatif/workloads.h"
#include "whatif/hand_made.h"
#include "whatif/recorded.h"

namespace tessera::whatif {
namespace {

using bind::Action;
using bind::Phase;
using test::error_of;
using testing::AllOf;
using testing::HasSubstr;

// An all-reduce of 30 ms over dp is under way beside one of 10 ms over tp, which the rank needs before it computes for
// 5 ms. Both use the same links: the shorter one ends after 20 ms, the longer one after 40.
struct TwoQueues {
  HandMade made{{{3'000'000, "dp"}, {1'000'000, "tp"}, 0},
                {{0, Phase::start}, {1, Phase::start}, {1, Phase::wait}, {2, Phase::run}, {0, Phase::wait}}};
  std::vector<double> milliseconds_of = {30, 10, 5};

  sim::ClassProgram program() const {
    sim::ClassProgram program;
    program.machine = made.recording.ranks[0].machine;
    for (size_t s = 0; s < milliseconds_of.size(); ++s) {
      const bind::Step& step = *program.machine->steps[s];
      const double seconds = milliseconds_of[s] * kMilli;
      program.seconds.push_back(step.info.communication ? 0 : seconds);
      sim::Transfer& transfer = program.transfers.emplace_back();
      if (step.info.communication)
        transfer = {seconds, static_cast<double>(step.cost.read), false, made.recording.links_of(step)};
    }
    return program;
  }

  sim::Predicted simulated() const {
    const MachineModel machine = round_machine(MachineModel::Progress::background, "simulated");
    sim::Workload workload;
    const int64_t ranks = made.recording.mesh.size();
    workload.ranks = sim::single_ranks(ranks);
    workload.programs.assign(static_cast<size_t>(ranks), program());
    for (size_t r = 0; r < workload.programs.size(); ++r) workload.programs[r].rank = static_cast<int>(r);
    workload.steps.resize(workload.programs.size());
    sim::PredictOptions options;
    options.machine = &machine;
    options.engine = made.recording.engine;
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

// By the name of the step.
std::map<std::string, std::string> queues_of_starts(const bind::MachineProgram& machine) {
  std::map<std::string, std::string> queues;
  for (const bind::Enqueued& it : *machine.actions) {
    if (it.action.phase == Phase::start)
      queues[machine.steps[static_cast<size_t>(it.action.task)]->info.name] =
          machine.queues[static_cast<size_t>(it.queue)];
    else
      EXPECT_EQ(it.queue, bind::kComputing);
  }
  return queues;
}
const std::map<std::string, std::string> kQueues = {{"a", "dp"}, {"b", "tp"}};

TEST(SeveralQueues, AreReadAsTheyWereWritten) {
  const Json json = to_json(TwoQueues().made.recording);
  const Recording read = from_json(json, "trace.json");
  EXPECT_EQ(to_json(read), json);
  EXPECT_EQ(read.ranks[0].machine->queues, (std::vector<std::string>{"", "dp", "tp"}));
  EXPECT_EQ(queues_of_starts(*read.ranks[0].machine), kQueues);
}

TEST(SeveralQueues, StayInChangedPrograms) {
  const sim::ClassProgram program = TwoQueues().program();
  const sim::ClassProgram inserted = with_insertions(program, {{0, false, "Copy", "x", 1}, {2, true, "Copy", "y", 1}});
  EXPECT_EQ(inserted.machine->steps.size(), 5U);
  EXPECT_EQ(queues_of_starts(*inserted.machine), kQueues);
  EXPECT_EQ(queues_of_starts(*without_overlap(program).machine), kQueues);
}

// A kernel after the one of 5 ms; both queues go on beside it.
TEST(SeveralQueues, MoveBesideAnInsertedKernel) {
  WhatIfChanges changes;
  changes.insert = {{"MatMul", 10}};
  EXPECT_NEAR(answer(TwoQueues().trace(), changes).step_ms, 40, 0.01);
  changes.insert = {{"MatMul", 30}};
  EXPECT_NEAR(answer(TwoQueues().trace(), changes).step_ms, 20 + 5 + 30, 0.01);
}

// Recorded times contain what queues took from each other, and the simulation of them takes it again.
TEST(SeveralQueues, TakeTheirOwnTimeOnSharedLinks) {
  const RecordedTrace trace = TwoQueues().trace();
  ASSERT_NEAR(trace.runs[0].seconds / kMilli, 40, 1e-6);
  for (const Moved& moved : transfers_of(trace.recording, trace.runs[0]))
    EXPECT_NEAR(moved.seconds / kMilli, moved.step == 0 ? 30 : 10, 1e-6);
  WhatIfChanges changes;
  EXPECT_NEAR(answer(trace, changes).replay_error, 0, 1e-6);
  EXPECT_NEAR(answer(trace, changes).step_ms, 40, 1e-6);
  changes.overlap = WhatIfChanges::Overlap::off;
  EXPECT_NEAR(answer(trace, changes).step_ms, 30 + 10 + 5, 1e-6);
  changes = {};
  changes.drop = {"b"};
  EXPECT_NEAR(answer(trace, changes).step_ms, 30, 1e-6);
}

// The first one over dp ends while the rank computes for 50 ms, after 40. By the second one, it takes 30 alone.
TEST(SeveralQueues, LoseTimeToTransfersThatEndUnseen) {
  TwoQueues queues{{{{3'000'000, "dp"}, {1'000'000, "tp"}, 0, {3'000'000, "dp"}},
                    {{0, Phase::start},
                     {1, Phase::start},
                     {1, Phase::wait},
                     {2, Phase::run},
                     {0, Phase::wait},
                     {3, Phase::start},
                     {3, Phase::wait}}},
                   {30, 10, 50, 30}};
  const RecordedTrace trace = queues.trace();
  ASSERT_NEAR(trace.runs[0].seconds / kMilli, 20 + 50 + 30, 1e-6);
  for (const Moved& moved : transfers_of(trace.recording, trace.runs[0])) {
    EXPECT_EQ(moved.hidden, moved.step == 0);
    EXPECT_NEAR(moved.seconds / kMilli, moved.step == 1 ? 10 : 30, 0.1);
  }
}

TEST(Sharing, TakesAsMuchAsOthersOfTheSameLinksAndDirection) {
  const auto lost = [](const Occupation& a, const Occupation& b) { return lost_to_sharing({a, b}); };
  using Seconds = std::vector<double>;
  EXPECT_EQ(lost({0, 40, {"near"}}, {10, 30, {"near"}}), (Seconds{10, 10}));
  EXPECT_EQ(lost({0, 40, {"near"}}, {40, 60, {"near"}}), (Seconds{0, 0}));
  EXPECT_EQ(lost({0, 40, {"near"}}, {10, 30, {"far"}}), (Seconds{0, 0}));
  EXPECT_EQ(lost({0, 40, {"near"}}, {10, 30, {"near", "far"}}), (Seconds{10, 10}));
  EXPECT_EQ(lost({0, 40, {"near"}, true, false}, {10, 30, {"near"}, false, true}), (Seconds{0, 0}));
  EXPECT_EQ(lost({0, 40, {"near"}, true, false}, {10, 30, {"near"}}), (Seconds{10, 10}));
  EXPECT_EQ(lost_to_sharing({{0, 40, {"near"}}, {0, 40, {"near"}}, {0, 40, {"near"}}, {0, 40, {"near"}}}),
            (Seconds{30, 30, 30, 30}));
}

TEST(SeveralQueues, InAnotherPlaceThanWritersPutThemAreDamage) {
  const Json json = to_json(TwoQueues().made.recording);
  const auto mistake = [](const Json& changed) { return error_of([&] { from_json(changed, "trace.json"); }); };
  const auto damaged = AllOf(HasSubstr("trace.json"), HasSubstr("damaged"), HasSubstr("record it again"));
  for (size_t action : {2, 3}) {  // a wait, a run
    Json changed = json;
    changed["programs"][0]["actions"][action][2] = 1;
    EXPECT_THAT(mistake(changed), damaged);
  }
  Json changed = json;
  changed["programs"][0]["actions"][0][2] = 3;
  EXPECT_THAT(mistake(changed), damaged);
  changed = json;
  changed["programs"][0]["queues"] = Json::array();
  changed["programs"][0]["actions"] = Json::array();
  EXPECT_THAT(mistake(changed), damaged);
}

TEST(SeveralQueues, OlderRecordingsHaveNoneAndAreRefusedByTheirVersion) {
  Json json = to_json(TwoQueues().made.recording);
  json["version"] = 1;
  EXPECT_THAT(error_of([&] { from_json(json, "trace.json"); }),
              AllOf(HasSubstr("trace.json was recorded by another version of tessera"), HasSubstr("format 1"),
                    HasSubstr("record it again")));
}

}  // namespace
}  // namespace tessera::whatif
