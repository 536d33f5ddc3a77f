#include "tessera/passes/early_starts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"
#include "tessera/cost/prices.h"

namespace tessera::passes {
namespace {

using spmd::Compiled;
using testing::ElementsAre;

// Products of [4n, n] by [n, n] take `product` seconds, gathers of [n, n] over two ranks `gather` seconds.
MachineModel machine_of(int64_t n, double product, double gather) {
  MachineModel machine;
  const auto size = static_cast<double>(n);
  machine.products[DType::float32] = {2 * 4 * size * size * size / product, {0, 0, 0}};
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), 1e30}};
  machine.links = {{"link", 0, 0, 4 * size * size / 2 / gather}};
  return machine;
}

// A chain of products whose weights are stored in halves.
Compiled layers(int count, int64_t n) {
  std::string weights, nodes, last = "x";
  Compiled::Orders orders;
  for (int i = 1; i <= count; ++i) {
    const std::string weight = fmt::format("w{}", i), result = i == count ? "y" : fmt::format("h{}", i);
    weights += fmt::format("{}float[{}, {}] {}", i > 1 ? ", " : "", n, n, weight);
    nodes += fmt::format("  v{2} = Identity ({1})\n  {3} = MatMul ({0}, v{2})\n", last, weight, i, result);
    orders.push_back({weight, "[fsdp, -]"});
    orders.push_back({fmt::format("v{}", i), "[-, -]"});
    orders.push_back({result, "[fsdp, -]"});
    last = result;
  }
  orders.push_back({"x", "[fsdp, -]"});
  return Compiled(
      fmt::format("m (float[{3}, {0}] x) => (float[{3}, {0}] y) <{1}> {{\n{2}}}\n", n, weights, nodes, 8 * n), "fsdp=2",
      orders);
}

// "G1" gathers w1, "M1" reads it.
std::vector<std::string> moved(spmd::Program program, const MachineModel* machine) {
  const Topology none;
  std::vector<std::string> notes, names;
  std::optional<cost::Prices> prices;
  if (machine) prices.emplace(*machine, program.mesh);
  Context context{none, notes};
  context.prices = prices ? &*prices : nullptr;
  early_starts(program, context);
  program.graph->verify("early_starts");
  int gathers = 0, products = 0;
  for (const auto& node : program.graph->nodes()) {
    if (node->op_type == "Identity") continue;  // moves with its gather
    names.push_back(node->op_type == "AllGather" ? fmt::format("G{}", ++gathers)
                    : node->op_type == "MatMul"  ? fmt::format("M{}", ++products)
                                                 : node->op_type);
  }
  return names;
}

const std::vector<std::string> kGiven = {"G1", "M1", "G2", "M2", "G3", "M3", "G4", "M4"};

TEST(EarlyStarts, GathersAreUnderWayDuringTheProductBefore) {
  const MachineModel machine = machine_of(16, 1, 0.5);
  EXPECT_THAT(moved(layers(4, 16).program(), &machine), ElementsAre("G1", "G2", "M1", "G3", "M2", "G4", "M3", "M4"));
}

// The last one by more than a product, those before it by as much more as it needs the link.
TEST(EarlyStarts, GathersThatTakeLongerThanProductsStartEarlier) {
  const MachineModel machine = machine_of(16, 1, 1.2);
  EXPECT_THAT(moved(layers(4, 16).program(), &machine), ElementsAre("G1", "G2", "G3", "M1", "G4", "M2", "M3", "M4"));
}

TEST(EarlyStarts, NothingMovesWithoutPrices) {
  EXPECT_EQ(moved(layers(4, 16).program(), nullptr), kGiven);
}

// A weight has 4 MiB, activations have 16, and most is needed where two of these are.
TEST(EarlyStarts, MemoryIsALimit) {
  const MachineModel machine = machine_of(1024, 1, 0.5);
  EXPECT_THAT(moved(layers(4, 1024).program(), &machine), ElementsAre("G1", "G2", "M1", "M2", "G3", "M3", "G4", "M4"));
}

}  // namespace
}  // namespace tessera::passes
