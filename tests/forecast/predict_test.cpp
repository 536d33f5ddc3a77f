#include "tessera/sim/predict.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <thread>

#include "error_of.h"
#include "tessera/compiler/programs.h"
#include "tessera/cost/collectives.h"
#include "tessera/forecast/flush_denormals.h"
#include "tessera/forecast/measure.h"
#include "tessera/forecast/report.h"
#include "tessera/ir/text.h"
#include "tessera/sim/rank_classes.h"
#include "tessera/spmd/collective_attributes.h"
#include "tessera/time.h"

namespace tessera::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Round numbers: a byte takes a nanosecond in memory and in a link.
MachineModel round_machine(const std::string& device = "cpu") {
  MachineModel machine;
  machine.name = "round";
  machine.device = device;
  machine.kernel = 1e-6;
  machine.products[DType::float32] = {1e9, {0, 0, 0}};
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), 1e9}};
  machine.links = {{"near", 4, 1e-6, 1e9}, {"far", 0, 1e-5, 1e8}};
  return machine;
}

// Of two layers, whose middle dimension tp splits.
constexpr std::string_view kPair = R"(
pair (float[batch, 64] x) => (float[batch, 64] y) <float[64, 256] up, float[256, 64] down> {
  hidden = MatMul (x, up)
  active = Relu (hidden)
  y = MatMul (active, down)
})";

std::string layers(int count) {
  std::string weights, nodes;
  for (int i = 0; i < count; ++i) {
    weights += fmt::format("{}float[64, 256] up{}, float[256, 64] down{}", i ? ", " : "", i, i);
    nodes += fmt::format(
        "  a{0} = MatMul (h{0}, up{0})\n  b{0} = Gelu (a{0})\n  c{0} = MatMul (b{0}, down{0})\n  h{1} = Add (h{0}, "
        "c{0})\n",
        i, i + 1);
  }
  return fmt::format("<opset_import: [\"\" : 21]>\nstack (float[batch, 64] h0) => (float[batch, 64] h{}) <{}> {{\n{}}}",
                     count, weights, nodes);
}

runtime::DryRun dry_run(std::string_view text, const std::string& mesh, const std::string& presets,
                        int64_t batch = 32) {
  compiler::ProgramOptions options;
  options.mesh = Mesh::parse(mesh);
  options.presets = presets;
  options.shapes = {{"batch", batch}};
  const auto source = std::make_shared<const compiler::Source>("model", parse_text(text), std::vector<uint64_t>());
  return compiler::compile_program(source, options).dry_run({{"batch", batch}});
}

Predicted predicted(const runtime::DryRun& run, const MachineModel& machine, PredictOptions options = {}) {
  options.machine = &machine;
  if (run.programs->mesh().size() > 1) options.topology = machine.topology(run.programs->mesh());
  return predict(run, options);
}

double kernels_and_transfers(const Predicted& made) {
  double sum = 0;
  for (size_t c = 0; c < made.classes.size(); ++c)
    for (const StepTime& step : made.classes[c].steps) sum += step.seconds;
  return sum;
}

// Each rank sends `x` to the next one, and the first rank alone has an element of `z`.
runtime::DryRun rotation(int ranks) {
  const auto program = std::make_shared<spmd::Program>();
  program->mesh = Mesh::parse(fmt::format("p={}", ranks));
  program->graph = std::make_unique<Graph>();
  const auto placed = [&](Value* value, const std::string& name, int64_t rows) {
    const Shape shape{rows, 64};
    const Sharding sharding = parse_sharding("[p, -]", shape, program->mesh, name);
    value->type = {DType::float32, local_shape(sharding, program->mesh)};
    program->placements[value] = {name, {DType::float32, shape}, sharding};
    return value;
  };
  const auto input = [&](const std::string& name, int64_t rows) {
    Value* value = placed(program->graph->add_input(name, {}), name, rows);
    program->inputs.push_back({name, value});
    return value;
  };
  const auto output = [&](Node* node, const std::string& name, int64_t rows) {
    program->graph->outputs.push_back(placed(node->outputs[0], name, rows));
    program->outputs.push_back({name, node->outputs[0]});
  };
  spmd::CollectiveAttributes permute{.kind = Collective::permute, .axes = {"p"}};
  for (int rank = 0; rank < ranks; ++rank) permute.targets.push_back((rank + 1) % ranks);
  Node* sent = program->graph->add_node("Permute", {input("x", ranks)}, {"y"}, spmd::kCommDomain);
  sent->attributes = spmd::written(permute);
  output(sent, "y", ranks);
  output(program->graph->add_node("Exp", {input("z", 1)}, {"w"}), "w", 1);
  return {runtime::RankPrograms::same(program), {}, {}};
}

TEST(Predict, RanksOfALargePermutationMeetAsAGroup) {
  const MachineModel machine = round_machine();
  const Predicted exact = predicted(rotation(kMostClasses), machine);
  EXPECT_FALSE(exact.ranks.whole_permutations);
  EXPECT_EQ(exact.classes.size(), static_cast<size_t>(kMostClasses));  // each is farther from the first
  const Predicted folded = predicted(rotation(128), machine);
  EXPECT_TRUE(folded.ranks.whole_permutations);
  EXPECT_EQ(folded.classes.size(), 2U);
  EXPECT_NEAR(folded.timeline.seconds, 1e-5 + 64 * 4 / 1e8, 1e-12);  // a row over the far link
}

TEST(Predict, CausalAttentionSkipsTheScoresThatItsMaskHides) {
  const auto seconds = [](int causal) {
    const std::string text = fmt::format(R"(<opset_import: ["" : 23]>
attend (float[batch, 4, 64, 32] q, float[batch, 4, 64, 32] k, float[batch, 4, 64, 32] v) => (float[batch, 4, 64, 32] y) {{
  y = Attention <is_causal = {}> (q, k, v)
}})",
                                         causal);
    MachineModel machine = round_machine();
    machine.rates["Attention"] = 0.5;
    return predicted(dry_run(text, "x=1", "none"), machine).timeline.seconds;
  };
  const double flops = 32.0 * 4 * 2 * 64 * 64 * (32 + 32);
  EXPECT_NEAR(seconds(0), 1e-6 + flops / 0.5e9, 1e-9);
  EXPECT_NEAR(seconds(1), 1e-6 + flops / 2 / 0.5e9, 1e-9);
}

TEST(Predict, OneRankTakesTheSumOfItsKernels) {
  const MachineModel machine = round_machine();
  const Predicted made = predicted(dry_run(kPair, "tp=1", "none"), machine);
  // Two products of 2 * 32 * 64 * 256 operations, one of which takes over Relu.
  const double product = 2 * 32 * 64 * 256 * 1e-9 + 1e-6;
  const double relu = 32 * 256 * 1e-9;
  EXPECT_NEAR(made.timeline.seconds, 2 * product + relu, 1e-12);
  EXPECT_NEAR(made.timeline.bound(), made.timeline.seconds, 1e-12);
}

TEST(Predict, ACollectiveTakesItsFormulaOnItsLink) {
  const MachineModel machine = round_machine();
  const Predicted made = predicted(dry_run(kPair, "tp=2", "megatron"), machine);
  const double product = 2 * 32 * 64 * 128 * 1e-9 + 1e-6;
  const double reduced = cost::time_on(Collective::all_reduce, {2, 1e-6, 1e-9}, 32 * 64 * 4);
  ASSERT_EQ(made.classes.size(), 2U);  // the first rank stores the output
  const double relu = 32 * 128 * 1e-9;
  EXPECT_NEAR(made.timeline.classes[0].exposed, reduced, 1e-12);
  EXPECT_NEAR(made.timeline.seconds, 2 * product + relu + reduced, 1e-12);
}

TEST(Predict, ASlowRankMakesAllWait) {
  const MachineModel machine = round_machine();
  const runtime::DryRun run = dry_run(kPair, "tp=4", "megatron");
  const double even = predicted(run, machine).timeline.seconds;
  PredictOptions options;
  options.slow = {{2, 3.0}};
  const Predicted made = predicted(run, machine, options);
  EXPECT_THAT(made.ranks.of, ElementsAre(0, 1, 2, 1));
  const double kernels = 2 * (2 * 32 * 64 * 64 * 1e-9 + 1e-6) + 32 * 64 * 1e-9;
  EXPECT_NEAR(made.timeline.seconds, even + 2 * kernels, 1e-12);
  EXPECT_NEAR(made.timeline.classes[1].idle, 2 * kernels, 1e-12);
  EXPECT_NEAR(made.timeline.classes[2].idle, 0, 1e-12);
}

// Only rank 0 stores the output, so three kinds of ranks meet unlike ranks; two of these do the same.
TEST(Predict, ClassesThatDifferInWhomTheyMeetAreBoundOnce) {
  const Predicted made = predicted(dry_run(kPair, "dp=2,copies=2,tp=2", "dp+megatron"), round_machine());
  std::set<int> bound(made.ranks.bound_like.begin(), made.ranks.bound_like.end());
  EXPECT_LT(bound.size(), made.ranks.first.size());
  for (const PredictedClass& each : made.classes) EXPECT_EQ(each.cost.flops, made.classes[0].cost.flops);
}

TEST(Predict, ALoopCountsItsIterations) {
  constexpr std::string_view kLoop = R"(<opset_import: ["" : 21]>
loop (float[batch, 64] x) => (float[batch, 64] y) <float[64, 64] w> {
  trips = Constant <value = int64 {5}> ()
  y = Loop <body = b (int64 i, bool c, float[batch, 64] v) => (bool d, float[batch, 64] u) {
    p = MatMul (v, w)
    q = Sin (p)
    u = MatMul (q, w)
    d = Identity (c)
  }> (trips, "", x)
})";
  const Predicted made = predicted(dry_run(kLoop, "tp=1", "none"), round_machine());
  EXPECT_GT(made.timeline.seconds, 10 * 2 * 32 * 64 * 64 * 1e-9);
}

// Each on a mesh with presets; with the bounds that hold for any program.
TEST(Predict, HoldsItsInvariantsOnManyMeshes) {
  struct Case {
    std::string mesh, presets;
  };
  const std::vector<Case> cases = {{"tp=4", "megatron"}, {"dp=2,tp=2", "dp+megatron"},
                                   {"dp=4", "dp"},       {"dp=2,tp=4", "dp+megatron"},
                                   {"tp=3", "megatron"}, {"dp=3", "dp"},
                                   {"dp=4", "fsdp"},     {"dp=2,tp=2", "fsdp+megatron"}};
  for (const std::string device : {"cpu", "simulated"})
    for (const Case& each : cases) {
      SCOPED_TRACE(fmt::format("{} {} on {}", each.mesh, each.presets, device));
      const runtime::DryRun run = dry_run(layers(3), each.mesh, each.presets, 35);
      MachineModel machine = round_machine(device);
      const Predicted made = predicted(run, machine);
      const double seconds = made.timeline.seconds;
      EXPECT_LE(made.timeline.bound(), seconds * (1 + 1e-9));
      EXPECT_LE(made.timeline.chain, seconds * (1 + 1e-9));
      EXPECT_LE(seconds, kernels_and_transfers(made) + 1e-3);  // copies of inputs and outputs come in addition
      for (const ClassTimes& times : made.timeline.classes)
        EXPECT_NEAR(times.compute + times.exposed + times.idle, seconds, 1e-9);

      PredictOptions single;
      single.fold = false;
      const Predicted all = predicted(run, machine, single);
      EXPECT_EQ(static_cast<int64_t>(all.classes.size()), run.programs->mesh().size());
      EXPECT_NEAR(all.timeline.seconds, seconds, 1e-12);
      for (size_t rank = 0; rank < all.classes.size(); ++rank) {
        const ClassTimes& own = all.timeline.classes[rank];
        const ClassTimes& of_class = made.timeline.classes[static_cast<size_t>(made.ranks.of[rank])];
        EXPECT_NEAR(own.compute, of_class.compute, 1e-12);
        EXPECT_NEAR(own.exposed, of_class.exposed, 1e-12);
        EXPECT_NEAR(own.idle, of_class.idle, 1e-12);
        EXPECT_EQ(all.classes[rank].cost.flops, made.classes[static_cast<size_t>(made.ranks.of[rank])].cost.flops);
        EXPECT_EQ(all.classes[rank].cost.received,
                  made.classes[static_cast<size_t>(made.ranks.of[rank])].cost.received);
      }
      for (MachineModel::Link& link : machine.links) {
        const double bandwidth = link.bandwidth;
        link.bandwidth *= 2;
        EXPECT_LE(predicted(run, machine).timeline.seconds, seconds + 1e-12) << link.name;
        link.bandwidth = bandwidth;
      }
    }
}

// 35 rows on 4 ranks: 9, 9, 9, 8.
TEST(Predict, OneRankStandsForSimilarOnes) {
  const runtime::DryRun run = dry_run(layers(3), "dp=4", "fsdp", 35);
  const MachineModel machine = round_machine("cpu");
  const Predicted exact = predicted(run, machine);
  ASSERT_GT(exact.classes.size(), 1U);
  PredictOptions similar;
  similar.fold_similar = true;
  const Predicted folded = predicted(run, machine, similar);
  ASSERT_EQ(folded.classes.size(), 1U);
  EXPECT_EQ(folded.classes.front().count, 4);
  EXPECT_NEAR(folded.timeline.seconds, exact.timeline.seconds, 0.02 * exact.timeline.seconds);
}

TEST(Predict, KernelsAreSlowerBesideTransfersOfTheirEngine) {
  const runtime::DryRun run = dry_run(layers(3), "dp=4", "fsdp");
  MachineModel machine = round_machine("simulated");
  machine.overlaps["gloo"] = {2, 1};
  const auto classes = [&](const std::string& engine) {
    PredictOptions options;
    options.engine = engine;
    return predicted(run, machine, options).timeline.classes;
  };
  const ClassTimes alone = classes("threads")[0], beside = classes("gloo")[0];
  ASSERT_GT(alone.overlapped, 0);
  ASSERT_GT(beside.overlapped, 0);
  EXPECT_NEAR(beside.compute - beside.overlapped / 2, alone.compute, 1e-12) << "twice as long while transfers move";
}

TEST(Predict, TransfersAreSlowerBesideKernels) {
  const runtime::DryRun run = dry_run(layers(3), "dp=4", "fsdp");
  MachineModel machine = round_machine("simulated");
  const double alone = predicted(run, machine).timeline.classes[0].overlapped;
  machine.overlap.slowed_by_computation = 1.5;
  EXPECT_NEAR(predicted(run, machine).timeline.classes[0].overlapped, 1.5 * alone, 1e-9);
}

// The gathers of all weights start at the beginning, over one link; some move beside kernels.
TEST(Predict, TellsWhatTransfersLoseToOthers) {
  const runtime::DryRun run = dry_run(layers(3), "dp=4", "fsdp");
  MachineModel machine = round_machine();
  for (const double slowed : {1.0, 1.5}) {
    machine.overlap.slowed_by_computation = slowed;
    const Predicted made = predicted(run, machine);
    double shared = 0;
    for (const Event& event : made.timeline.classes[0].events) {
      const PredictedClass& each = made.classes[0];
      const bind::Action& action = each.actions[static_cast<size_t>(event.action)].action;
      if (action.phase != bind::Phase::wait) continue;
      const double alone = each.steps[static_cast<size_t>(action.task)].seconds;
      const double own = event.moved - event.moving - event.shared;
      EXPECT_GE(own, alone - 1e-12);
      EXPECT_LE(own, slowed * alone + 1e-12);
      shared += event.shared;
    }
    EXPECT_GT(shared, 0);
  }
}

// One core: both ranks compute, and then move data, at half the speed. A collective was measured in that way.
TEST(Predict, RanksThatMoveDataWhileTheyWaitShareCores) {
  MachineModel machine = round_machine();
  machine.cores = 1;
  machine.progress = MachineModel::Progress::at_wait;
  const runtime::DryRun run = dry_run(kPair, "tp=2", "megatron");
  const double kernels = 2 * (2 * 32 * 64 * 128 * 1e-9 + 1e-6) + 32 * 128 * 1e-9;
  const double reduced = cost::time_on(Collective::all_reduce, {2, 1e-6, 1e-9}, 32 * 64 * 4);
  EXPECT_NEAR(predicted(run, machine).timeline.seconds, 2 * kernels + 2 * reduced, 1e-12);
  machine.collectives = {{"threads", "all_reduce", 2, 2, {{32 * 64 * 4, 1e-3}}}};
  EXPECT_NEAR(predicted(run, machine).timeline.seconds, 2 * kernels + 1e-3, 1e-12);
}

// Rank 0 stores its own part of y, [16, 64]; rank 1 of another process sends the same over the link.
TEST(Predict, OutputsOfOtherProcessesTakeTheirMessages) {
  const MachineModel machine = round_machine();
  const auto seconds_more = [&](const std::string& mesh, const std::string& presets, int64_t process_ranks) {
    const runtime::DryRun run = dry_run(kPair, mesh, presets);
    const Predicted together = predicted(run, machine);
    PredictOptions options;
    options.process_ranks = process_ranks;
    const Predicted made = predicted(run, machine, options);
    for (const ClassTimes& times : made.timeline.classes)
      EXPECT_NEAR(times.compute + times.exposed + times.idle, made.timeline.seconds, 1e-12);
    EXPECT_LE(made.timeline.bound(), made.timeline.seconds);
    return made.timeline.seconds - together.timeline.seconds;
  };
  const auto message = [](double bytes) { return 1e-6 + bytes * 1e-9; };
  EXPECT_NEAR(seconds_more("dp=2", "dp", 1), message(16 * 64 * 4), 1e-12);
  EXPECT_NEAR(seconds_more("dp=4", "dp", 1), 3 * message(8 * 64 * 4), 1e-12);
  EXPECT_NEAR(seconds_more("dp=4", "dp", 2), 2 * message(8 * 64 * 4), 1e-12);
  EXPECT_NEAR(seconds_more("dp=4", "dp", 4), 0, 1e-12);
  EXPECT_NEAR(seconds_more("tp=2", "megatron", 1), 0, 1e-12) << "rank 0 has y whole";
}

// Rank 0 copies columns apart, from memory to memory at 1 byte/ns; a sender has them dense, but for devices with memory
// of their own.
TEST(Predict, OutputsOfOtherProcessesAreCopiedUnlessTheyAreOnePiece) {
  constexpr std::string_view kColumns = R"(
columns (float[batch, 64] x) => (float[batch, 256] y) <float[64, 256] up> {
  y = MatMul (x, up)
})";
  const runtime::DryRun run = dry_run(kColumns, "tp=2", "megatron");
  for (const auto& [device, copies] : {std::pair{"cpu", 1}, {"simulated", 2}}) {
    const MachineModel machine = round_machine(device);
    PredictOptions options;
    options.process_ranks = 1;
    const Predicted made = predicted(run, machine, options);
    ASSERT_EQ(made.collectives.size(), 1U);
    EXPECT_EQ(made.collectives[0].kind, "send");
    EXPECT_TRUE(made.collectives[0].outside);
    const double bytes = made.collectives[0].bytes;
    EXPECT_EQ(bytes, 32 * 128 * 4);
    EXPECT_NEAR(made.timeline.seconds - predicted(run, machine).timeline.seconds,
                1e-6 + bytes * 1e-9 + copies * 2 * bytes * 1e-9, 1e-12);
  }
}

TEST(Predict, MessagesBetweenProcessesTakeTheirMeasuredTime) {
  MachineModel machine = round_machine();
  machine.collectives = {{"gloo", "send", 2, 4, {{1000, 1e-3}, {10000, 1e-2}}}};
  const auto seconds = [&](int machine_ranks) {
    runtime::DryRun run = dry_run(kPair, "dp=4", "dp");
    run.options.machine_ranks = machine_ranks;
    PredictOptions options;
    options.engine = "gloo";
    options.process_ranks = 1;
    const Predicted with = predicted(run, machine, options);
    options.process_ranks = 0;
    return with.timeline.seconds - predicted(run, machine, options).timeline.seconds;
  };
  const double measured = 2048e-6, near = 1e-6 + 2048e-9;
  EXPECT_NEAR(seconds(1), 3 * measured, 1e-12);
  EXPECT_NEAR(seconds(4), 3 * measured, 1e-12);
  EXPECT_NEAR(seconds(2), near + 2 * measured, 1e-12) << "rank 1 is on the machine of rank 0";
}

// Those of a ring are as fast as a permutation among as many members.
TEST(Predict, MessagesOfAProgramTakeTheirMeasuredTime) {
  compiler::ProgramOptions options;
  options.mesh = Mesh::parse("tp=2");
  options.presets = "megatron";
  options.product_rings = compiler::ProductRings::always;
  const auto source = std::make_shared<const compiler::Source>("model", parse_text(kPair), std::vector<uint64_t>());
  const runtime::DryRun run = compiler::compile_program(source, options).dry_run({{"batch", 32}});
  MachineModel machine = round_machine();
  PredictOptions gloo;
  gloo.engine = "gloo";
  const auto whether_measured = [](const Predicted& made) {
    std::set<std::pair<std::string, bool>> kinds;
    for (const UsedCollective& each : made.collectives)
      if (each.kind == "send" || each.kind == "recv") kinds.emplace(each.kind, each.measured);
    return kinds;
  };
  EXPECT_THAT(whether_measured(predicted(run, machine, gloo)),
              ElementsAre(std::pair("recv", false), std::pair("send", false)));
  machine.collectives = {{"gloo", "permute", 2, 2, {{1000, 1e-3}, {10000, 1e-2}}}};
  const Predicted made = predicted(run, machine, gloo);
  EXPECT_THAT(whether_measured(made), ElementsAre(std::pair("recv", true), std::pair("send", true)));
  EXPECT_GT(made.timeline.links, 16 * 64 * 4 * 1e-6);  // half of y
}

// What other ranks and the caller would give is indices here, in memory that other values use meanwhile.
TEST(Measure, RunsKernelsThatReadIndices) {
  constexpr std::string_view kLookup = R"(<opset_import: ["" : 21]>
lookup (int64[batch, 8] ids) => (float[batch, 8, 64] y, int64[batch, 8] best) <float[100, 64] table, float[64, 64] w> {
  row = Gather (table, ids)
  h = MatMul (row, w)
  active = Gelu (h)
  z = MatMul (active, w)
  again = Gather (table, ids)
  y = Add (z, again)
  best = ArgMax <axis = 2, keepdims = 0> (y)
})";
  for (const std::string mesh : {"dp=2", "tp=2"}) {
    SCOPED_TRACE(mesh);
    runtime::DryRun run = dry_run(kLookup, mesh, mesh == "dp=2" ? "dp" : "megatron");
    run.options.machine_ranks = 2;
    auto found = forecast::measure_kernels(run, 0, {}, {.seconds = 0, .least_rounds = 3, .most_rounds = 3});
    size_t gathers = 0;
    for (const auto& [signature, kernel] : found) {
      EXPECT_GT(kernel.seconds, 0) << signature;
      gathers += signature.starts_with("Gather");
    }
    EXPECT_GE(gathers, 1U);
    for (auto& [signature, kernel] : found) kernel.uncertain = false;  // else it is measured again
    EXPECT_TRUE(forecast::measure_kernels(run, 0, found).empty());
  }
}

TEST(Measure, TakesDenormalNumbersForZeros) {
  const auto product = [] {
    volatile float small = 1e-30F;
    return small * 1e-10F;
  };
  std::vector<float> products(2);
  std::thread([&] {  // keeps this state from other tests
    forecast::flush_denormals(2);
#pragma omp parallel for num_threads(2) schedule(static, 1)
    for (int i = 0; i < 2; ++i) products[static_cast<size_t>(i)] = product();
  })
      .join();
#if defined(__x86_64__) || defined(__aarch64__)
  EXPECT_THAT(products, ElementsAre(0, 0));
#endif
  EXPECT_GT(product(), 0);
}

// Weights of a measurement are 0.01 or so, inputs are zeros, and the twentieth power of their sum is denormal.
TEST(Measure, ProductsOfDenormalNumbersTakeTheirUsualTime) {
  const runtime::DryRun run = dry_run(R"(
powers (float[batch, 256] x) => (float[batch, 256] y, float[batch, 320] z) <float[256] b, float[256, 256] w,
                                                                           float[256, 320] v> {
  p = Add (x, b)
  p2 = Mul (p, p)
  p4 = Mul (p2, p2)
  p8 = Mul (p4, p4)
  p16 = Mul (p8, p8)
  p20 = Mul (p16, p4)
  y = MatMul (p20, w)
  z = MatMul (p, v)
})",
                                      "dp=1", "none", 256);
  double least = std::numeric_limits<double>::infinity();  // ratio of three tries, which other work may disturb
  for (int i = 0; i < 3; ++i) {
    std::map<std::string, double> seconds;  // of each result, by FLOPs
    for (const auto& [signature, kernel] :
         forecast::measure_kernels(run, 0, {}, {.seconds = 0, .least_rounds = 5, .most_rounds = 5}))
      if (signature.starts_with("MatMul"))
        seconds[signature.find("320") == std::string::npos ? "denormal" : "usual"] = kernel.seconds / kernel.flops;
    ASSERT_EQ(seconds.size(), 2U);
    least = std::min(least, seconds["denormal"] / seconds["usual"]);
  }
  EXPECT_LT(least, 8);
}

TEST(Predict, NamesWhatAClusterLacks) {
  MachineModel machine = round_machine();
  machine.links = {{"near", 4, 1e-6, 1e9}};
  const runtime::DryRun run = dry_run(kPair, "tp=8", "megatron");
  EXPECT_THAT(test::error_of([&] { predicted(run, machine); }), HasSubstr("joins at most 4 of the mesh's 8 ranks"));
}

TEST(Predict, ReportsTheChainByOperator) {
  const Prediction report = forecast::report(predicted(dry_run(kPair, "tp=2", "megatron"), round_machine()));
  double sum = 0;
  for (const ChainPart& part : report.chain) sum += part.ms;
  EXPECT_NEAR(sum, report.step_ms, 1e-9);
  EXPECT_NEAR(report.compute_ms + report.exposed_ms + report.idle_ms, report.step_ms, 1e-9);
  ASSERT_FALSE(report.chain.empty());
}

}  // namespace
}  // namespace tessera::sim
