// Which collectives go around rings beside their products, against the best of all choices, in simulation.
#include "tessera/compiler/ring_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tessera/compiler/programs.h"
#include "tessera/ir/text.h"
#include "tessera/sim/predict.h"
#include "tessera/spmd/partition/init.h"

namespace tessera::sim {
namespace {

using compiler::RingOutcome;
using passes::ProductCollective;
using passes::RingChoice;
using passes::RingForm;

// Rows of a pair of products, split between them: an all-gather, then a reduce-scatter.
struct PairOfProducts {
  int64_t rows = 1024, columns = 1024, inner = 1024;
  int members = 4;
};

MachineModel linked(double alpha, double bandwidth, double flops, double half = 0) {
  MachineModel machine;
  machine.name = "made up";
  machine.device = "simulated";
  machine.kernel = 1e-6;
  machine.products[DType::float32] = {flops, {half, half, half}};
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), flops / 10}};
  machine.links = {{"link", 0, alpha, bandwidth}};
  return machine;
}

// A step before its kernels and links have times.
struct PlannedStep {
  RankClasses ranks;
  std::vector<ClassWork> works;
};

// The pair as a program without rings, and its steps with them, each planned once for all machines.
class PairProgram {
 public:
  explicit PairProgram(const PairOfProducts& pair) : mesh_(Mesh::parse(fmt::format("t={}", pair.members))) {
    compiler::ProgramOptions options;
    options.mesh = mesh_;
    options.presets = "none";
    for (const char* each : {"x=[t, -]", "v=[-, t]", "h=[-, t]", "a=[-, t]", "w=[t, -]", "y=[t, -]"})
      options.annotations.push_back(compiler::AnnotationRequest::parse(each, "annotation"));
    options.product_rings = compiler::ProductRings::never;
    options.bucket_bytes = 0;
    const std::string text = fmt::format(
        "<ir_version: 10, opset_import: [\"\" : 21]>\nm (float[{0}, {1}] x) => (float[{0}, {1}] y) <float[{1}, {2}] v, "
        "float[{2}, {1}] w> {{\n  h = MatMul (x, v)\n  a = Relu (h)\n  y = MatMul (a, w)\n}}",
        pair.rows, pair.columns, pair.inner);
    source_ = std::make_shared<const compiler::Source>("model", parse_text(text), std::vector<uint64_t>());
    program_ = compiler::compile_program(source_, options).program;
  }

  const Mesh& mesh() const { return mesh_; }
  const spmd::Program& program() const { return *program_; }
  std::vector<ProductCollective> collectives() const { return passes::product_collectives(*program_); }

  const PlannedStep& planned_with(const std::vector<RingChoice>& choices, bool fold) {
    std::string key = fmt::format("{}", fold);
    for (const RingChoice& each : choices) key += fmt::format(" {} {}", each.at, str(each.form));
    const auto [known, fresh] = steps_.try_emplace(key);
    if (!fresh) return known->second;
    auto copy = std::make_shared<spmd::Program>(spmd::in_one_graph(*program_));
    std::vector<std::string> notes;
    const Topology topology;
    passes::Context context{topology, notes};
    context.choose_rings = [&](const spmd::Program&) { return choices; };
    collective_products(*copy, context);
    const runtime::DryRun run{runtime::RankPrograms::same(copy), {}, {.threads_per_rank = 1}};
    PlannedStep& made = known->second;
    made.ranks = fold ? classes_of(*run.programs, run.symbols, {}) : single_ranks(mesh_.size());
    made.works = planned(run, made.ranks, "simulated");
    return made;
  }

 private:
  Mesh mesh_;
  std::shared_ptr<const compiler::Source> source_;
  std::shared_ptr<const spmd::Program> program_;
  std::map<std::string, PlannedStep> steps_;
};

// The pair on a machine.
class PairOnMachine {
 public:
  PairOnMachine(PairProgram& pair, MachineModel machine)
      : pair_(pair),
        machine_(std::move(machine)),
        topology_(machine_.topology(pair.mesh())),
        prices_(machine_, pair.mesh(), topology_) {}

  double seconds(const std::vector<RingChoice>& choices, bool fold = true) const {
    const PlannedStep& step = pair_.planned_with(choices, fold);
    PredictOptions asked;
    asked.machine = &machine_;
    asked.topology = topology_;
    return simulated(priced(pair_.mesh(), step.ranks, step.works, {}, asked), pair_.mesh(), asked).timeline.seconds;
  }

  std::vector<RingChoice> chosen(std::vector<RingOutcome>& outcomes) const {
    return compiler::choose_rings(
        pair_.program(), &prices_, [&](const spmd::Program&, const auto& choices) { return seconds(choices); }, true,
        outcomes);
  }

  // The least time with both collectives in rings of the same form, or one of them.
  double least_with_rings() const {
    double best = std::numeric_limits<double>::infinity();
    const std::vector<ProductCollective> all = pair_.collectives();
    for (const RingForm& form : {RingForm{false, 1}, {true, 1}, {false, 2}, {true, 2}, {false, 4}})
      for (const int which : {1, 2, 3}) {
        std::vector<RingChoice> choices;
        for (size_t i = 0; i < all.size(); ++i)
          if (all[i].is_candidate() && (which >> i & 1)) choices.push_back({all[i].at, form});
        best = std::min(best, seconds(choices));
      }
    return best;
  }

 private:
  PairProgram& pair_;
  MachineModel machine_;
  Topology topology_;
  cost::Prices prices_;
};

std::vector<bool> taken(const std::vector<RingOutcome>& outcomes) {
  std::vector<bool> all;
  for (const RingOutcome& each : outcomes) all.push_back(each.taken);
  return all;
}

// The products of a rank take 2.15 ms, and so do the bytes of its links.
TEST(RingChoice, HidesTransfersBehindProductsOfTheSameTime) {
  MachineModel machine = linked(1e-6, 1024 * 1024 * 4 * 0.75 / 2.15e-3 * 2, 5e11);
  machine.bandwidths[0].bytes_per_second = 1e12;
  PairProgram program({.members = 4});
  const PairOnMachine pair(program, machine);
  std::vector<RingOutcome> outcomes;
  const double with = pair.seconds(pair.chosen(outcomes)), without = pair.seconds({});
  EXPECT_THAT(taken(outcomes), testing::ElementsAre(true, true)) << outcomes[0].why << "; " << outcomes[1].why;
  EXPECT_LT(1.6 * with, without);
}

// A rank that sends to one neighbour while it receives from the other uses its link in both directions, whether it
// stands for its neighbours or not.
TEST(RingChoice, TakesAsLongIfEachRankIsSimulated) {
  PairProgram program({});
  const PairOnMachine pair(program, linked(1e-6, 1e9, 5e11));
  std::vector<RingChoice> scatters;
  for (const ProductCollective& each : program.collectives())
    if (std::holds_alternative<passes::ProductScatter>(each.site)) scatters.push_back({each.at, {}});
  ASSERT_EQ(scatters.size(), 1U);
  EXPECT_NEAR(pair.seconds(scatters, true), pair.seconds(scatters, false), 1e-9);
}

TEST(RingChoice, LeavesWhatLatencyOrSmallPiecesMakeSlower) {
  std::vector<RingOutcome> late, small;
  PairProgram large({}), little({.rows = 64, .columns = 64, .inner = 64});
  PairOnMachine(large, linked(1e-2, 1e10, 5e11)).chosen(late);
  EXPECT_THAT(taken(late), testing::ElementsAre(false, false));
  PairOnMachine(little, linked(1e-7, 1e10, 5e11, 256)).chosen(small);
  EXPECT_THAT(taken(small), testing::ElementsAre(false, false));
  EXPECT_THAT(small.front().why, testing::HasSubstr("by itself, a ring would take"));
}

// In a ring, blocks of columns are made apart before they are joined. Time is not worth a program that does not fit.
TEST(RingChoice, SaysThatMemoryForbidsRings) {
  compiler::ProgramOptions options;
  options.mesh = Mesh::parse("t=4");
  options.presets = "none";
  for (const char* each : {"x=[t, -]", "v=[-, t]", "y=[t, -]"})
    options.annotations.push_back(compiler::AnnotationRequest::parse(each, "annotation"));
  const MachineModel machine = linked(1e-6, 2.9e9, 5e11);
  options.topology = machine.topology(options.mesh);
  options.machine = std::make_shared<const MachineModel>(machine);
  const auto source = std::make_shared<const compiler::Source>(
      "model",
      parse_text("<ir_version: 10, opset_import: [\"\" : 21]>\nm (float[1024, 64] x) => (float[1024, 16384] y) "
                 "<float[64, 16384] v> { y = MatMul (x, v) }"),
      std::vector<uint64_t>());
  const compiler::CompiledProgram made = compiler::compile_program(source, options);
  ASSERT_EQ(made.rings.size(), 1U);
  ASSERT_TRUE(made.rings[0].taken) << made.rings[0].why;
  options.memory_limit = compiler::process_bytes_of({&made}) - 1;
  const compiler::CompiledProgram whole = compiler::compile_program(source, options);
  EXPECT_LE(compiler::process_bytes_of({&whole}), options.memory_limit);
  ASSERT_EQ(whole.rings.size(), 1U);
  EXPECT_FALSE(whole.rings[0].taken);
  EXPECT_EQ(whole.rings[0].collective, made.rings[0].collective);
  EXPECT_THAT(whole.rings[0].why, testing::HasSubstr("more than the limit of"));
}

// 400 such pairs, one after the other: trials have two of them.
TEST(RingChoice, TakesTheSameInAllBlocksOfALargeProgram) {
  constexpr size_t kBlocks = 400;
  std::string states, nodes;
  for (size_t b = 0; b < kBlocks; ++b) {
    states += fmt::format("{0}float[512, 512] v{1}, float[512, 512] w{1}", b ? ", " : "", b);
    nodes +=
        fmt::format("  a{0} = MatMul (h{0}, v{0})\n  r{0} = Relu (a{0})\n  h{1} = MatMul (r{0}, w{0})\n", b, b + 1);
  }
  compiler::ProgramOptions options;
  options.mesh = Mesh::parse("t=4");
  options.presets = "none";
  for (const char* each : {"h*=[t, -]", "v*=[-, t]", "a*=[-, t]", "r*=[-, t]", "w*=[t, -]"})
    options.annotations.push_back(compiler::AnnotationRequest::parse(each, "annotation"));
  options.product_rings = compiler::ProductRings::never;
  options.bucket_bytes = 0;
  const std::string text = fmt::format(
      "<ir_version: 10, opset_import: [\"\" : 21]>\nm (float[512, 512] h0) => (float[512, 512] h{}) <{}> {{\n{}}}",
      kBlocks, states, nodes);
  const auto program =
      compiler::compile_program(
          std::make_shared<const compiler::Source>("model", parse_text(text), std::vector<uint64_t>()), options)
          .program;
  const MachineModel machine = linked(1e-6, 1e9, 5e11);
  const cost::Prices prices(machine, options.mesh, machine.topology(options.mesh));
  size_t largest = 0;
  std::vector<RingOutcome> outcomes;
  const std::vector<RingChoice> chosen = compiler::choose_rings(
      *program, &prices,
      [&](const spmd::Program& tried, const std::vector<RingChoice>& choices) {
        largest = std::max(largest, tried.graph->nodes().size());
        return 1e-3 - 1e-4 * static_cast<double>(choices.size());
      },
      true, outcomes);
  const std::vector<ProductCollective> all = passes::product_collectives(*program);
  EXPECT_EQ(static_cast<long>(chosen.size()),
            std::count_if(all.begin(), all.end(), [](const auto& each) { return each.is_candidate(); }));
  EXPECT_GE(chosen.size(), kBlocks);
  for (const RingOutcome& each : outcomes) EXPECT_TRUE(each.taken) << each.collective << ": " << each.why;
  EXPECT_LT(largest, 30U);
}

// On pairs of random extents, each on machines of random speeds.
TEST(RingChoice, IsAlmostAlwaysTheCheaperSide) {
  std::mt19937 random(11);
  const auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random));
  };
  constexpr int kPairs = 40, kMachines = 25;
  int right = 0, rings = 0;
  for (int i = 0; i < kPairs; ++i) {
    const PairOfProducts pair{.rows = static_cast<int64_t>(between(64, 4096)),
                              .columns = static_cast<int64_t>(between(64, 4096)),
                              .inner = static_cast<int64_t>(between(64, 4096)),
                              .members = std::uniform_int_distribution<int>(2, 6)(random)};
    PairProgram program(pair);
    for (int m = 0; m < kMachines; ++m) {
      const PairOnMachine on(program,
                             linked(between(1e-7, 1e-3), between(1e8, 1e12), between(1e10, 1e14), between(1, 256)));
      std::vector<RingOutcome> outcomes;
      const std::vector<RingChoice> chosen = on.chosen(outcomes);
      const double time = on.seconds(chosen), without = on.seconds({}), with = on.least_with_rings();
      EXPECT_LE(time, without);
      // A gain of under 2 % is not taken.
      const bool is_right = chosen.empty() == (0.98 * without < with);
      EXPECT_LE(time, (is_right ? 1.06 : 1.02) * std::min(with, without) + 1e-12)
          << pair.rows << " x " << pair.columns << " x " << pair.inner << " on " << pair.members << ", machine " << m
          << ": " << outcomes[0].why << "; " << outcomes[1].why;
      rings += !chosen.empty();
      right += is_right;
    }
  }
  std::printf("  %d of %d right, %d with rings\n", right, kPairs * kMachines, rings);
  EXPECT_GE(right, kPairs * kMachines * 95 / 100);
  EXPECT_GE(rings, kPairs * kMachines / 10);
}

}  // namespace
}  // namespace tessera::sim
