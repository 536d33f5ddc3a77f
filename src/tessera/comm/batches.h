#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

/// How collectives are timed, ours and others', so that times can be compared. Needs nothing but the standard library:
/// programs in bench/ include it.
namespace tessera::comm {

struct MeasureOptions {
  double seconds = 0.1;  ///< of measuring at each point, at least
  int repeats = 5;       ///< batches of which the median is taken, at least
};

/// Seconds of one `body`: the median over batches of the slowest rank, the operations of a batch following each other
/// at once. Called by all ranks together: `meet()` lets nobody leave before all have come, and `slowest(seconds)` is
/// the largest of all ranks' arguments, on every rank. Batches last about a millisecond, long against what starting
/// together costs.
template <typename Body, typename Meet, typename Slowest>
double slowest_median(const MeasureOptions& options, Body&& body, Meet&& meet, Slowest&& slowest) {
  constexpr double kBatchSeconds = 1e-3, kMostBatches = 1000, kMostInBatch = 1 << 20;
  auto time = [&](int64_t times) {
    meet();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < times; ++i) body();
    return slowest(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  };
  time(1);
  // All ranks know the slowest time, so all find the same numbers.
  const double once = std::max(time(1), 1e-9);
  const double in_batch = std::clamp(std::ceil(kBatchSeconds / once), 1.0, kMostInBatch);
  const double batches =
      std::clamp(std::ceil(options.seconds / (once * in_batch)), static_cast<double>(options.repeats), kMostBatches);
  std::vector<double> times(static_cast<size_t>(batches));
  for (double& entry : times) entry = time(static_cast<int64_t>(in_batch)) / in_batch;
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace tessera::comm
