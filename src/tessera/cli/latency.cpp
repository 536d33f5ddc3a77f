#include "tessera/cli/latency.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace tessera::cli {

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

Latency::Latency(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  min = times.front();
  mean = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  median = quantile(times, 0.5);
  p90 = quantile(times, 0.9);
  p99 = quantile(times, 0.99);
}

}  // namespace tessera::cli
