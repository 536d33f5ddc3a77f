#include "tessera/cli/latency.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(Latency, quantiles_lie_between_neighbours_by_proportion) {
  const std::vector<double> times{10, 20, 30};
  EXPECT_EQ(quantile(times, 0), 10);
  EXPECT_EQ(quantile(times, 0.5), 20);
  EXPECT_EQ(quantile(times, 0.75), 25);
  EXPECT_EQ(quantile(times, 1), 30);
  EXPECT_NEAR(quantile(times, 0.99), 29.8, 1e-12);
  EXPECT_EQ(quantile({10, 20}, 0.5), 15);
  EXPECT_EQ(quantile({7}, 0.9), 7);
}

TEST(Latency, sums_up_times_in_any_order) {
  std::vector<double> times;
  for (int i = 100; i >= 0; --i) times.push_back(i);
  times.push_back(1050);
  const Latency latency(times);
  EXPECT_EQ(latency.min, 0);
  EXPECT_EQ(latency.mean, 6100.0 / 102);
  EXPECT_EQ(latency.median, 50.5);
  EXPECT_NEAR(latency.p90, 90.9, 1e-9);
  EXPECT_NEAR(latency.p99, 99.99, 1e-9);
}

}  // namespace
}  // namespace tessera::cli
