#include "tessera/spmd/decide/costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/mesh/sharding.h"

namespace tessera::spmd {
namespace {

using testing::ElementsAre;

MachineModel with_links(double alpha, double bandwidth) {
  MachineModel machine;
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), 1e9}};
  machine.links = {{"link", 0, alpha, bandwidth}};
  return machine;
}

std::vector<std::string> steps(const Costs& costs, const Sharding& from, const Sharding& to) {
  std::vector<std::string> names;
  for (const ReshardStep& step : costs.plan(from, to, DType::float32)) names.push_back(step.str(costs.mesh()));
  return names;
}

// Three communications move fewer bytes than two.
TEST(Costs, PlanFewStepsWhereLatencyIsLong) {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  const Hints hints;
  const Shape shape = {4096};
  Sharding from = parse_sharding("[tp]", shape, mesh, "x");
  from.partial.push_back({{"dp", 1, 2}, Reduction::sum});
  const Sharding to = parse_sharding("[dp]", shape, mesh, "x");
  const Costs by_bytes(mesh, hints);
  EXPECT_EQ(steps(by_bytes, from, to).size(), 3U);
  const cost::Prices fast(with_links(1e-9, 1e9), mesh), late(with_links(1, 1e9), mesh);
  EXPECT_EQ(steps(Costs(mesh, hints, &fast), from, to), steps(by_bytes, from, to));
  EXPECT_THAT(steps(Costs(mesh, hints, &late), from, to), ElementsAre("AllGather tp", "ReduceScatter dp"));
}

TEST(Costs, AreBytesOrSeconds) {
  const Mesh mesh = Mesh::parse("tp=2");
  const Hints hints;
  const Shape shape = {1000};
  const Sharding split = parse_sharding("[tp]", shape, mesh, "x"), whole = parse_sharding("[-]", shape, mesh, "x");
  EXPECT_EQ(Costs(mesh, hints).between(split, whole, DType::float32), 2000);
  const cost::Prices prices(with_links(1e-6, 1e9), mesh);
  EXPECT_DOUBLE_EQ(Costs(mesh, hints, &prices).between(split, whole, DType::float32), 3e-6);
  EXPECT_EQ(Costs(mesh, hints, &prices).between(whole, split, DType::float32), 0);
}

}  // namespace
}  // namespace tessera::spmd
