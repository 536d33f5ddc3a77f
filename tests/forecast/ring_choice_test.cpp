// Which collectives go around rings beside their products, against the best of all choices, in simulation.
#include "tessera/compiler/ring_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sample.h"
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
  MachineModel machine;
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

// The pair as a program without rings, and its steps with them.
class PairProgram {
 public:
  explicit PairProgram(const PairOfProducts& pair) : machine_(pair.machine) {
    compiler::ProgramOptions options;
    options.mesh = Mesh::parse(fmt::format("t={}", pair.members));
    options.presets = "none";
    for (const char* each : {"x=[t, -]", "v=[-, t]", "w=[t, -]", "y=[t, -]"})
      options.annotations.push_back(compiler::AnnotationRequest::parse(each, "annotation"));
    options.topology = topology_ = machine_.topology(options.mesh);
    options.machine = std::make_shared<const MachineModel>(machine_);
    options.product_rings = compiler::ProductRings::never;
    options.bucket_bytes = 0;
    const std::string text = fmt::format(
        "<ir_version: 10, opset_import: [\"\" : 21]>\nm (float[{0}, {1}] x) => (float[{0}, {1}] y) <float[{1}, {2}] v, "
        "float[{2}, {1}] w> {{\n  h = MatMul (x, v)\n  a = Relu (h)\n  y = MatMul (a, w)\n}}",
        pair.rows, pair.columns, pair.inner);
    source_ = std::make_shared<const compiler::Source>("model", parse_text(text), std::vector<uint64_t>());
    program_ = compiler::compile_program(source_, options).program;
    prices_ = std::make_unique<cost::Prices>(machine_, options.mesh, topology_);
  }

  double seconds(const std::vector<RingChoice>& choices, bool fold = true) const {
    auto copy = std::make_shared<spmd::Program>(spmd::in_one_graph(*program_));
    std::vector<std::string> notes;
    passes::Context context{topology_, notes};
    context.choose_rings = [&](const spmd::Program&) { return choices; };
    collective_products(*copy, context);
    runtime::DryRun run{runtime::RankPrograms::same(copy), {}, {.threads_per_rank = 1}};
    PredictOptions asked;
    asked.machine = &machine_;
    asked.topology = topology_;
    asked.fold = fold;
    return predict(run, asked).timeline.seconds;
  }

  std::vector<ProductCollective> collectives() const { return passes::product_collectives(*program_); }

  std::vector<RingChoice> chosen(std::vector<RingOutcome>& outcomes) const {
    return compiler::choose_rings(
        *program_, prices_.get(), [&](const auto& choices) { return seconds(choices); }, outcomes);
  }

  // The least time with the same form for both collectives, for one of them, or for none.
  double least() const {
    double best = seconds({});
    const std::vector<ProductCollective> all = collectives();
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
  MachineModel machine_;
  Topology topology_;
  std::shared_ptr<const compiler::Source> source_;
  std::shared_ptr<const spmd::Program> program_;
  std::unique_ptr<cost::Prices> prices_;
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
  const PairProgram pair({.members = 4, .machine = machine});
  std::vector<RingOutcome> outcomes;
  const double with = pair.seconds(pair.chosen(outcomes)), without = pair.seconds({});
  EXPECT_THAT(taken(outcomes), testing::ElementsAre(true, true)) << outcomes[0].why << "; " << outcomes[1].why;
  EXPECT_LT(1.5 * with, without);
}

// A rank that sends to one neighbour while it receives from the other uses its link in both directions, whether it
// stands for its neighbours or not.
TEST(RingChoice, TakesAsLongIfEachRankIsSimulated) {
  const PairProgram pair({.machine = linked(1e-6, 1e9, 5e11)});
  std::vector<RingChoice> scatters;
  for (const ProductCollective& each : pair.collectives())
    if (std::holds_alternative<passes::ProductScatter>(each.site)) scatters.push_back({each.at, {}});
  ASSERT_EQ(scatters.size(), 1U);
  EXPECT_NEAR(pair.seconds(scatters, true), pair.seconds(scatters, false), 1e-9);
}

TEST(RingChoice, LeavesWhatLatencyOrSmallPiecesMakeSlower) {
  std::vector<RingOutcome> late, small;
  PairProgram({.machine = linked(1e-2, 1e10, 5e11)}).chosen(late);
  EXPECT_THAT(taken(late), testing::ElementsAre(false, false));
  PairProgram({.rows = 64, .columns = 64, .inner = 64, .machine = linked(1e-7, 1e10, 5e11, 256)}).chosen(small);
  EXPECT_THAT(taken(small), testing::ElementsAre(false, false));
  EXPECT_THAT(small.front().why, testing::HasSubstr("by itself, a ring would take"));
}

// In a ring, blocks of a wide result are made before they are joined. Time is not worth a program that does not fit.
TEST(RingChoice, SaysThatMemoryForbidsRings) {
  compiler::ProgramOptions options;
  options.mesh = Mesh::parse("t=4");
  options.presets = "none";
  for (const char* each : {"x=[t, -]", "v=[-, t]", "y=[-, t]"})
    options.annotations.push_back(compiler::AnnotationRequest::parse(each, "annotation"));
  const MachineModel machine = linked(1e-6, 1.8e8, 5e11);
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

TEST(RingChoice, IsAlmostAlwaysTheCheaperSide) {
  std::mt19937 random(11);
  const auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random));
  };
  const int count = test::sample(100, 1000);
  int right = 0, rings = 0;
  for (int i = 0; i < count; ++i) {
    const PairOfProducts pair{
        .rows = static_cast<int64_t>(between(64, 4096)),
        .columns = static_cast<int64_t>(between(64, 4096)),
        .inner = static_cast<int64_t>(between(64, 4096)),
        .members = std::uniform_int_distribution<int>(2, 6)(random),
        .machine = linked(between(1e-7, 1e-3), between(1e8, 1e12), between(1e10, 1e14), between(1, 256))};
    const PairProgram program(pair);
    std::vector<RingOutcome> outcomes;
    const std::vector<RingChoice> chosen = program.chosen(outcomes);
    const double time = program.seconds(chosen), without = program.seconds({}), least = program.least();
    EXPECT_LE(time, without);
    rings += !chosen.empty();
    // A gain of under 2 % is not taken.
    right += time <= 1.02 * least + 1e-12;
    EXPECT_LE(time, 1.1 * least) << pair.rows << " x " << pair.columns << " x " << pair.inner << " on " << pair.members;
  }
  std::printf("  %d of %d right, %d with rings\n", right, count, rings);
  EXPECT_GE(right, count * 95 / 100);
  EXPECT_GE(rings, count / 10);
}

}  // namespace
}  // namespace tessera::sim
