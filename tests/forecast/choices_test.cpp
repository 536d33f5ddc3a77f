// What a compilation chooses by the seconds of a machine, against what it chooses by bytes, in simulation.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/compiler/programs.h"
#include "tessera/ir/text.h"
#include "tessera/sim/predict.h"

namespace tessera::sim {
namespace {

// A byte takes a nanosecond in memory.
MachineModel machine_with(double alpha, double bandwidth, double flops = 1e10) {
  MachineModel machine;
  machine.name = "made up";
  machine.device = "simulated";
  machine.kernel = 1e-6;
  machine.products[DType::float32] = {flops, {0, 0, 0}};
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), 1e9}};
  machine.links = {{"link", 0, alpha, bandwidth}};
  return machine;
}

struct Made {
  double seconds = 0;
  std::vector<std::string> communications;
};

// A step of the model, compiled with or without the machine, on that machine.
Made made(std::string_view text, const std::string& mesh, const std::vector<std::string>& annotations,
          const MachineModel& machine, bool by_seconds) {
  compiler::ProgramOptions options;
  options.mesh = Mesh::parse(mesh);
  options.presets = "none";
  for (const std::string& each : annotations)
    options.annotations.push_back(compiler::AnnotationRequest::parse(each, "annotation"));
  options.topology = machine.topology(options.mesh);
  if (by_seconds) options.machine = std::make_shared<const MachineModel>(machine);
  const auto source = std::make_shared<const compiler::Source>("model", parse_text(text), std::vector<uint64_t>());
  const runtime::DryRun run = compiler::compile_program(source, options).dry_run({});
  PredictOptions asked;
  asked.machine = &machine;
  asked.topology = options.topology;
  const Predicted predicted = predict(run, asked);
  Made result{predicted.timeline.seconds, {}};
  for (const UsedCollective& used : predicted.collectives) result.communications.push_back(used.kind);
  return result;
}

// Softmax along a split dimension takes two reductions of few bytes, or one gather of many.
TEST(ChoicesBySeconds, GatherWhereLatencyCostsMoreThanBytes) {
  constexpr std::string_view softmax = R"(<ir_version: 10, opset_import: ["" : 21]>
m (float[32, 256] x) => (float[32, 256] y) {
  y = Softmax <axis = -1> (x)
})";
  const auto by = [&](const MachineModel& machine, bool by_seconds) {
    return made(softmax, "tp=4", {"x=[-, tp]"}, machine, by_seconds);
  };
  const MachineModel late = machine_with(1e-3, 1e10), narrow = machine_with(1e-9, 1e7);
  EXPECT_THAT(by(late, true).communications, testing::ElementsAre("all_gather"));
  EXPECT_THAT(by(late, false).communications, testing::ElementsAre("all_reduce"));
  EXPECT_THAT(by(narrow, true).communications, testing::ElementsAre("all_reduce"));
  EXPECT_LT(by(late, true).seconds, 0.7 * by(late, false).seconds);
}

// A random graph of products, sums and movements of [64, 64], with random annotations.
struct RandomGraph {
  std::string text;
  std::vector<std::string> annotations;

  explicit RandomGraph(std::mt19937& random) {
    const auto below = [&](int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random); };
    std::string weights, nodes;
    const int count = 4 + below(8);
    for (int i = 1; i <= count; ++i) {
      const int from = below(i), other = below(i);
      switch (below(5)) {
        case 0:
        case 1:
          weights += fmt::format("{}float[64, 64] w{}", weights.empty() ? "" : ", ", i);
          nodes += fmt::format("  h{} = MatMul (h{}, w{})\n", i, from, i);
          if (below(2)) annotations.push_back(fmt::format("w{}={}", i, below(2) ? "[-, x]" : "[y, -]"));
          break;
        case 2:
          nodes += fmt::format("  h{} = Add (h{}, h{})\n", i, from, other);
          break;
        case 3:
          nodes += fmt::format("  h{} = Transpose <perm = [1, 0]> (h{})\n", i, from);
          break;
        default:
          nodes += fmt::format("  h{} = MatMul (h{}, h{})\n", i, from, other);
      }
    }
    annotations.push_back(below(2) ? "h0=[x, -]" : "h0=[-, y]");
    text = fmt::format(
        "<ir_version: 10, opset_import: [\"\" : 21]>\nm (float[64, 64] h0) => (float[64, 64] h{}){} {{\n{}}}", count,
        weights.empty() ? "" : " <" + weights + ">", nodes);
  }
};

// A choice sums times up node by node, where a run overlaps them, so that it may lose; it loses seldom, and little.
TEST(ChoicesBySeconds, AreHardlyEverSlowerThanThoseByBytes) {
  std::mt19937 random(7);
  double by_bytes = 0, by_seconds = 0, worst = 0;
  int faster = 0, slower = 0;
  for (int i = 0; i < 60; ++i) {
    const RandomGraph graph(random);
    for (const MachineModel& machine : {machine_with(1e-6, 1e9), machine_with(1e-4, 1e9), machine_with(1e-6, 1e7)}) {
      const double before = made(graph.text, "x=2,y=2", graph.annotations, machine, false).seconds;
      const double after = made(graph.text, "x=2,y=2", graph.annotations, machine, true).seconds;
      by_bytes += before;
      by_seconds += after;
      worst = std::max(worst, after / before);
      faster += after < 0.999 * before;
      slower += after > 1.001 * before;
    }
  }
  EXPECT_LT(by_seconds, by_bytes);
  EXPECT_GT(faster, 2 * slower);
  EXPECT_LT(worst, 1.25);
}

}  // namespace
}  // namespace tessera::sim
