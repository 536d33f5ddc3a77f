// What passes choose by the seconds of a machine: slow or fast in one respect each.
#include "tessera/cost/prices.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"
#include "tessera/passes/buckets.h"
#include "tessera/passes/pipeline.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::passes {
namespace {

using spmd::Compiled;

constexpr double kForever = 1e30;  // per second

// Takes no time for anything.
MachineModel ideal() {
  MachineModel machine;
  machine.products[DType::float32] = {kForever, {0, 0, 0}};
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), kForever}};
  machine.links = {{"link", 0, 0, kForever}};
  return machine;
}
MachineModel with_links(MachineModel machine, double alpha, double bandwidth) {
  machine.links = {{"link", 0, alpha, bandwidth}};
  return machine;
}
MachineModel with_products(MachineModel machine, double flops) {
  machine.products[DType::float32].flops = flops;
  return machine;
}
MachineModel with_memory(MachineModel machine, double bytes_per_second) {
  machine.bandwidths.front().bytes_per_second = bytes_per_second;
  return machine;
}

// The operators of the program after a pass.
std::vector<std::string> passed(spmd::Program program, void (*pass)(spmd::Program&, Context&),
                                const MachineModel* machine, const std::string& recomputed = "",
                                const Topology& topology = {}) {
  std::vector<std::string> notes, names;
  std::optional<cost::Prices> prices;
  if (machine) prices.emplace(*machine, program.mesh);
  Context context{topology, notes, Recompute::parse(recomputed)};
  context.prices = prices ? &*prices : nullptr;
  pass(program, context);
  program.graph->verify("passed");
  for (const auto& node : program.graph->nodes()) {
    const bool bucketed = node->get<int64_t>(spmd::kBucketAttribute) != nullptr;
    names.push_back(node->op_type + (node->name.ends_with(".again") ? " again" : bucketed ? " bucket" : ""));
  }
  return names;
}

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(PassesByPrices, GoAroundARingWhereProductsHideItsMessages) {
  const Compiled split(
      "m (float[1, 2, 64, 8] q, float[1, 2, 64, 8] k, float[1, 2, 64, 8] v) => (float[1, 2, 64, 8] y) {\n"
      "  y = Attention (q, k, v)\n}\n",
      "x=4", {{"q", "[-, -, x, -]"}, {"k", "[-, -, x, -]"}, {"v", "[-, -, x, -]"}, {"y", "[-, -, x, -]"}});
  const auto rings = [&](const MachineModel& machine) {
    return has(passed(split.program(), ring_attention, &machine), "Send");
  };
  const MachineModel hidden = with_products(with_links(ideal(), 0, 1e6), 1e4);
  EXPECT_TRUE(rings(hidden));
  MachineModel at_wait = hidden;
  at_wait.progress = MachineModel::Progress::at_wait;
  EXPECT_FALSE(rings(with_memory(at_wait, 1e6))) << "nothing moves during products, and results are joined";
  EXPECT_FALSE(rings(with_memory(hidden, 1e3))) << "joining results costs more than gathers";
  EXPECT_FALSE(rings(with_links(ideal(), 1, kForever))) << "three messages in sequence for each tensor, instead of two";
}

TEST(PassesByPrices, FillBucketsUntilLatencyIsAFifth) {
  const auto gradients = [](int rows, int depth) {
    return Compiled(
        fmt::format(
            "m (float[{0}, {1}] x, float[{1}, {0}] a, float[{1}, {0}] b) => (float[{0}, {0}] g, float[{0}, {0}] h) {{\n"
            "  p = MatMul (x, a)\n  g = Neg (p)\n  q = MatMul (x, b)\n  h = Neg (q)\n}}\n",
            rows, depth),
        "dp=2", {{"x", "[-, dp]"}, {"a", "[dp, -]"}, {"b", "[dp, -]"}});
  };
  const Compiled small = gradients(8, 64), large = gradients(4096, 262144);
  const auto joins = [](const Compiled& split, double alpha, double bandwidth) {
    const MachineModel machine = with_links(ideal(), alpha, bandwidth);
    return has(passed(split.program(), buckets, &machine), "AllReduce bucket");
  };
  EXPECT_TRUE(joins(small, 1e-6, 1e9)) << "two of 256 bytes in a bucket of 4,000";
  EXPECT_FALSE(joins(small, 1e-8, 1e9)) << "40";
  // Two of 64 MiB: as large as a bucket may be where no machine is named.
  EXPECT_TRUE(joins(large, 8e-3, 1e10));
  EXPECT_FALSE(joins(large, 1e-4, 1e10));
  EXPECT_FALSE(has(passed(large.program(), buckets, nullptr, "", {{{"dp", {{2, 8e-3, 1e10, ""}}}}, "test"}),
                   "AllReduce bucket"));
}

// Two blocks: recomputing both activations frees as much as one activation and what it is made of.
TEST(PassesByPrices, RecomputeWhatTakesTheLeastTime) {
  std::string states, nodes, later;
  for (int i = 0; i < 3; ++i) {
    states += fmt::format("{}float[16, 256] up{}, float[256, 16] down{}", i ? ", " : "", i, i);
    nodes += fmt::format(
        "  wide{0} = MatMul (h{0}, up{0})\n  active{0} = Gelu (wide{0})\n  back{0} = MatMul (active{0}, down{0})\n"
        "  h{1} = Add (h{0}, back{0})\n",
        i, i + 1);
    later = fmt::format(
                "  dback{0} = MatMul (g{1}, up{0})\n  dactive{0} = Mul (dback{0}, active{0})\n  dwide{0} = Mul "
                "(dactive{0}, wide{0})\n  dh{0} = MatMul (dwide{0}, down{0})\n  g{0} = Add (g{1}, dh{0})\n",
                i, i + 1) +
            later;
  }
  const Compiled compiled("m (float[64, 16] x) => (float[] loss, float[64, 16] g0) <" + states +
                              "> {\n  h0 = Identity (x)\n" + nodes +
                              "  loss = ReduceSum <keepdims = 0> (h3)\n  g3 = Tanh (h3)\n" + later + "}\n",
                          "");
  const auto multiplies_again = [&](const MachineModel& machine) {
    const std::vector<std::string> names = passed(compiled.program(), recompute, &machine, "auto:120000");
    EXPECT_GT(std::count(names.begin(), names.end(), "Gelu"), 3) << "something is recomputed";
    return std::count(names.begin(), names.end(), "MatMul") > 12;
  };
  EXPECT_FALSE(multiplies_again(with_products(ideal(), 1e7)));
  EXPECT_TRUE(multiplies_again(with_memory(ideal(), 1e7)));
}

}  // namespace
}  // namespace tessera::passes
