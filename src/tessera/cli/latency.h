#pragma once

#include <chrono>
#include <vector>

/// Statistics of times.
namespace tessera::cli {

using Clock = std::chrono::steady_clock;
double milliseconds_since(Clock::time_point start);

/// The value below which a share of the `sorted` times (at least one) lies, interpolated between neighbours: for 10,
/// 20, 30 the share 0.75 gives 25.
double quantile(const std::vector<double>& sorted, double share);

/// The statistics of a list of times, in their unit.
struct Latency {
  double min = 0, mean = 0, median = 0, p90 = 0, p99 = 0;

  /// At least one time, in any order.
  explicit Latency(std::vector<double> times);
};

}  // namespace tessera::cli
