#include "tessera/cost/prices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.h"
#include "tessera/base/error.h"
#include "tessera/mesh/group.h"

namespace tessera::cost {
namespace {

// A byte takes a nanosecond in memory and over the near links, ten over the far ones.
MachineModel two_levels() {
  MachineModel machine;
  machine.source = "two.json";
  machine.kernel = 1e-6;
  machine.products[DType::float32] = {1e9, {0, 0, 0}};
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), 1e9}};
  machine.links = {{"near", 4, 1e-6, 1e9}, {"far", 0, 1e-5, 1e8}};
  return machine;
}

TEST(Prices, TakeTheFormThatIsFasterOnTheGroupsLinks) {
  const Mesh mesh = Mesh::parse("tp=8");
  const Prices prices(two_levels(), mesh);
  const auto levels = levels_of({parse_axis("tp", mesh)}, mesh, two_levels().topology(mesh));
  std::vector<Level> costs;
  for (const GroupLevel& level : levels) costs.push_back(level.cost);
  ASSERT_EQ(costs.size(), 2U);
  const double all = prices.collective(Collective::all_reduce, {parse_axis("tp", mesh)}, 1e6);
  EXPECT_LT(all, flat_time(Collective::all_reduce, costs, 1e6));
  EXPECT_DOUBLE_EQ(all, hierarchical_time(Collective::all_reduce, costs, 1e6));
  EXPECT_DOUBLE_EQ(prices.collective(Collective::all_reduce, {parse_axis("tp:(2)4", mesh)}, 0), 2e-6);
  EXPECT_DOUBLE_EQ(prices.collective(Collective::permute, {parse_axis("tp", mesh)}, 1e6),
                   costs.back().alpha + 1e6 * costs.back().beta);
  EXPECT_EQ(prices.collective(Collective::all_reduce, {parse_axis("tp:(2)1", mesh)}, 1e6), 0);
}

TEST(Prices, PreferWhatWasMeasured) {
  MachineModel machine = two_levels();
  machine.collectives.push_back({"threads", "all_reduce", 2, 2, {{1000, 1e-3}, {3000, 2e-3}}});
  const Mesh mesh = Mesh::parse("tp=2");
  const Prices prices(machine, mesh);
  EXPECT_DOUBLE_EQ(prices.collective(Collective::all_reduce, {parse_axis("tp", mesh)}, 2000), 1.5e-3);
  EXPECT_DOUBLE_EQ(prices.collective(Collective::all_gather, {parse_axis("tp", mesh)}, 2000), 2e-6);
  EXPECT_FALSE(measured_time(machine, "processes", Collective::all_reduce, 2, 2, 2000).has_value());
}

TEST(Prices, SayWhichLinksTheFileLacks) {
  MachineModel machine = two_levels();
  machine.links.clear();
  const Mesh mesh = Mesh::parse("tp=2");
  const Prices prices(machine, mesh);
  EXPECT_EQ(prices.kernel({.signature = "Add", .bytes = 1000}), 2e-6);
  EXPECT_THAT(test::error_of([&] { prices.collective(Collective::all_gather, {parse_axis("tp", mesh)}, 8); }),
              testing::HasSubstr("two.json says nothing of links over tp"));
}

}  // namespace
}  // namespace tessera::cost
