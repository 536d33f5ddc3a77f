#include "forecast/paced_run.h"

#include <gtest/gtest.h>

namespace tessera::forecast {
namespace {

// What the runtime enqueues, event by event, on the simulated device, takes what was simulated. bench_real_time is the
// same with kernels that sleep.
TEST(PacedRun, TakesTheSimulatedTime) {
  constexpr double kKernel = 1e-3;
  for (const auto& [mesh, presets] : std::vector<std::pair<std::string, std::string>>{{"tp=1", "none"},
                                                                                      {"tp=2", "megatron"},
                                                                                      {"tp=3", "megatron"},
                                                                                      {"dp=2,tp=2", "dp+megatron"},
                                                                                      {"dp=4", "fsdp"}}) {
    SCOPED_TRACE(mesh + " " + presets);
    const auto [dry, predicted] = paced_run(mesh, presets, kKernel);
    ASSERT_GT(predicted.timeline.seconds, 10 * kKernel);
    EXPECT_NEAR(run(dry, predicted, false) / predicted.timeline.seconds, 1, 1e-9);
  }
}

// Messages that go around rings beside products, too.
TEST(PacedRun, TakesTheSimulatedTimeInRings) {
  constexpr double kKernel = 1e-3;
  double whole = 0;
  for (const compiler::ProductRings rings : {compiler::ProductRings::never, compiler::ProductRings::by_cost}) {
    const auto [dry, predicted] = paced_pair(kKernel, rings);
    EXPECT_NEAR(run(dry, predicted, false) / predicted.timeline.seconds, 1, 1e-8) << "but for copies";
    if (rings == compiler::ProductRings::never)
      whole = predicted.timeline.seconds;
    else
      EXPECT_LT(1.5 * predicted.timeline.seconds, whole);
  }
}

}  // namespace
}  // namespace tessera::forecast
