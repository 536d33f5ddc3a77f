#pragma once

#include <chrono>
#include <vector>

/// Times, and what many of them come to.
namespace tessera::cli {

using Clock = std::chrono::steady_clock;
double milliseconds_since(Clock::time_point start);

/// Of `sorted` times, at least one, the value below which a share of them lies, between neighbours by proportion: of
/// 10, 20, 30 the share 0.75 is 25.
double quantile(const std::vector<double>& sorted, double share);

/// What a list of times comes to, in their unit.
struct Latency {
  double min = 0, mean = 0, median = 0, p90 = 0, p99 = 0;

  /// At least one time, in any order.
  explicit Latency(std::vector<double> times);
};

}  // namespace tessera::cli
