#include "tessera/forecast/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/cost/prices.h"
#include "tessera/mesh/group.h"

namespace tessera::forecast {
namespace {

// As calibrate() writes it: links between threads.
MachineModel calibrated() {
  MachineModel machine;
  machine.processor = "some";
  machine.progress = MachineModel::Progress::at_wait;
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), 1e9}};
  machine.links = {{"threads", 0, 1e-6, 1e10}};
  machine.collectives = {{"threads", "all_gather", 2, 2, {{1024, 1e-6}, {1 << 20, 1e-4}, {1 << 22, 4e-4}}}};
  return machine;
}

// A link of 1e8 bytes/s that lets the first 64 KiB pass at once; two members of an all-gather send half of the bytes.
MachineModel measured_on_gloo() {
  MachineModel machine = calibrated();
  const auto seconds = [](double bytes) { return 1e-4 + std::max(0.0, bytes / 2 - (64 << 10)) / 1e8; };
  MachineModel::Collective gathers{"gloo", "all_gather", 2, 2, {}};
  for (double bytes = 1024; bytes <= 1 << 22; bytes *= 4) gathers.points.emplace_back(bytes, seconds(bytes));
  machine.collectives.push_back(gathers);
  return machine;
}

TEST(SimulatedRun, EnginesThatWereMeasuredHaveLinksOfTheirOwn) {
  const MachineModel machine = measured_on_gloo();
  const std::vector<MachineModel::Link> links = machine_on(machine, "gloo").links;
  ASSERT_EQ(links.size(), 1U);
  EXPECT_EQ(links[0].name, "gloo");
  EXPECT_NEAR(links[0].alpha, 1e-4, 1e-12);
  EXPECT_NEAR(links[0].bandwidth, 1e8, 1);
  EXPECT_EQ(machine_on(machine, "threads").links, machine.links);
  EXPECT_EQ(machine_on(machine, "mpi").links, machine.links);
  // What was not measured is no faster than what was.
  const Mesh mesh({{"dp", 2}});
  const cost::Prices prices(machine_on(machine, "gloo"), mesh);
  const std::vector<AxisRef> group = parse_axes({"dp"}, mesh);
  EXPECT_GT(prices.collective(Collective::permute, group, 1e6), 1e6 / 1e8);
  EXPECT_GT(prices.collective(Collective::reduce_scatter, group, 1e6), 0.5e6 / 1e8);
}

TEST(SimulatedRun, AFileWithLevelsOfLinksKeepsThem) {
  MachineModel machine = measured_on_gloo();
  machine.links = {{"host", 4, 1e-6, 1e10}, {"ethernet", 0, 1e-5, 1e9}};
  EXPECT_EQ(machine_on(machine, "gloo").links, machine.links);
  EXPECT_TRUE(knows_links(machine, "gloo"));
}

TEST(SimulatedRun, ThreadsSayNothingOfLinksBetweenHosts) {
  EXPECT_TRUE(knows_links(calibrated(), "threads"));
  EXPECT_TRUE(knows_links(calibrated(), "processes"));
  EXPECT_FALSE(knows_links(calibrated(), "gloo"));
  EXPECT_FALSE(knows_links(calibrated(), "mpi"));
  EXPECT_TRUE(knows_links(measured_on_gloo(), "gloo"));
}

}  // namespace
}  // namespace tessera::forecast
