// What holds of every prediction, of random programs on random meshes. TESSERA_RANDOM_PROGRAMS and TESSERA_RANDOM_SEED
// as in random_programs_test.cpp.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <iostream>
#include <limits>

#include "random/compile_options.h"
#include "random/machine.h"
#include "random/random_program.h"
#include "random/settings.h"
#include "sample.h"
#include "tessera/base/error.h"
#include "tessera/compiler/programs.h"
#include "tessera/compiler/rank_view.h"
#include "tessera/compiler/summary.h"
#include "tessera/sim/predict.h"

namespace tessera::random {
namespace {

compiler::CompiledProgram compiled(const Program& program) {
  compiler::ProgramOptions options;
  split_as(program, options);
  OnnxModel model = program.clone().model;
  return compiler::compile_program(
      std::make_shared<const compiler::Source>("model", std::move(model), std::vector<uint64_t>()), options);
}

sim::Predicted predicted(const runtime::DryRun& run, const MachineModel& machine, bool fold) {
  sim::PredictOptions options;
  options.machine = &machine;
  if (run.programs->mesh().size() > 1) options.topology = machine.topology(run.programs->mesh());
  options.fold = fold;
  return sim::predict(run, options);
}

// Kernels and transfers of all ranks, each once, and copies of inputs and outputs.
double sum_of(const sim::Predicted& made) {
  double sum = 0;
  for (const sim::PredictedClass& each : made.classes) {
    sum += each.copied;
    for (const sim::StepTime& step : each.steps) sum += step.seconds;
  }
  return sum;
}

// Of a prediction of all ranks.
void expect_bounds(const sim::Predicted& made) {
  const double seconds = made.timeline.seconds;
  EXPECT_LE(made.timeline.chain, seconds * (1 + 1e-9));
  EXPECT_LE(made.timeline.bound(), seconds * (1 + 1e-9));
  EXPECT_LE(seconds, sum_of(made) * (1 + 1e-9));
  for (const sim::ClassTimes& times : made.timeline.classes)
    EXPECT_NEAR(times.compute + times.exposed + times.idle, seconds, 1e-9);
}

void expect_equal(const sim::Predicted& folded, const sim::Predicted& all) {
  EXPECT_NEAR(all.timeline.seconds, folded.timeline.seconds, 1e-12);
  for (size_t rank = 0; rank < all.classes.size(); ++rank) {
    const auto c = static_cast<size_t>(folded.ranks.of[rank]);
    EXPECT_NEAR(all.timeline.classes[rank].compute, folded.timeline.classes[c].compute, 1e-12) << rank;
    EXPECT_NEAR(all.timeline.classes[rank].exposed, folded.timeline.classes[c].exposed, 1e-12) << rank;
    EXPECT_EQ(all.classes[rank].cost.flops, folded.classes[c].cost.flops) << rank;
    EXPECT_EQ(all.classes[rank].cost.received, folded.classes[c].cost.received) << rank;
  }
}

// Bytes by axes, as the program's summary counts those of rank 0, and FLOPs, as the rank's figures do. A collective's
// bytes are whole, so that several that start as one may differ by a byte each.
void expect_costs(const sim::Predicted& made, const compiler::CompiledProgram& program, const Symbols& sizes) {
  const sim::PredictedClass& first = made.classes[static_cast<size_t>(made.ranks.of[0])];
  double flops = 0;
  std::map<std::string, double> bytes, expected, collectives;
  std::vector<bool> counted(first.steps.size());
  for (size_t a = 0; a < first.actions.size(); ++a) {
    const auto step = static_cast<size_t>(first.actions[a].action.task);
    if (counted[step]) continue;
    counted[step] = true;
    const bind::StepInfo& info = (*first.infos)[a];
    flops += first.costs[step].flops * first.repeats[step];
    if (info.communication)
      bytes[fmt::format("{}", fmt::join(info.axes, ","))] +=
          static_cast<double>(first.costs[step].received) * first.repeats[step];
  }
  for (const CollectiveSummary& each : compiler::summarize(*program.program).collectives) {
    const std::string axes = fmt::format("{}", fmt::join(each.axes, ","));
    expected[axes] += static_cast<double>(each.bytes);
    collectives[axes] += static_cast<double>(each.count);
  }
  for (const auto& [axes, count] : collectives) EXPECT_NEAR(bytes[axes], expected[axes], count) << axes;
  for (const auto& [axes, received] : bytes) EXPECT_TRUE(received == 0 || expected.contains(axes)) << axes;
  EXPECT_NEAR(flops, static_cast<double>(compiler::RankView(program, 0, sizes).figures().flops), 1 + 1e-9 * flops);
}

TEST(RandomPredictions, KeepTheirInvariants) {
  const uint64_t count = number_from("TESSERA_RANDOM_PROGRAMS", test::sample<uint64_t>(80, 2000));
  const uint64_t first = number_from("TESSERA_RANDOM_SEED", kFirstSeed);
  int predictions = 0, refused = 0;
  for (uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) {
    const Program program = generate(seed);
    SCOPED_TRACE(fmt::format("repeat it with TESSERA_RANDOM_SEED={} TESSERA_RANDOM_PROGRAMS=1", seed));
    try {
      const compiler::CompiledProgram made = compiled(program);
      const Symbols sizes(program.symbols.begin(), program.symbols.end());
      const runtime::DryRun run = made.dry_run(sizes);
      for (const std::string device : {"cpu", "simulated"}) {
        const MachineModel machine = machine_of(device);
        const sim::Predicted folded = predicted(run, machine, true), all = predicted(run, machine, false);
        expect_bounds(all);
        expect_equal(folded, all);
        // The summary counts what runs at all places, also elsewhere than on rank 0.
        if (program.places.empty()) expect_costs(folded, made, sizes);
        EXPECT_LE(predicted(run, machine_of(device, 4), true).timeline.seconds, folded.timeline.seconds * (1 + 1e-12));
        ++predictions;
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::user) throw;
      ++refused;
    }
  }
  std::cout << "  seeds from " << first << ": " << predictions << " predictions, " << refused << " programs refused\n";
  EXPECT_GT(predictions, refused);
}

}  // namespace
}  // namespace tessera::random
