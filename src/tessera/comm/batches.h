#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

/// The timing protocol for collectives, ours and other libraries', so that times can be compared. Needs only the
/// standard library, since programs in bench/ include it.
namespace tessera::comm {

struct TimingOptions {
  double seconds = 0.1;  ///< of measuring at each point, at least
  int repeats = 5;       ///< batches of a round, at least; fewer if one takes longer than a tenth of a second
};

struct Timing {
  double seconds = 0;
  double scatter = 0;  ///< how much longer the slowest round took than the fastest, as a share of that

  bool operator==(const Timing&) const = default;
};

/// Seconds of one `body`. A batch is a run of back-to-back operations for about a millisecond, which is long against
/// the cost of starting together; its time is that of the slowest rank. A round is several batches, of which the median
/// counts. Rounds repeat until two in a row agree within a twentieth, or for eight times the requested time. The
/// fastest round is the answer, since disturbances only slow a machine down. All ranks call this together: `meet()`
/// lets nobody leave before all have arrived, and `slowest(seconds)` gives every rank the largest of all ranks'
/// arguments.
template <typename Body, typename Meet, typename Slowest>
Timing slowest_median(const TimingOptions& options, Body&& body, Meet&& meet, Slowest&& slowest) {
  constexpr double kBatchSeconds = 1e-3, kMostBatches = 500, kMostInBatch = 1 << 20, kAgree = 0.05, kPatience = 8,
                   kSlow = 0.1;
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
  const double least = std::clamp(std::ceil(options.repeats * kSlow / once), 1.0, static_cast<double>(options.repeats));
  const double batches = std::clamp(std::ceil(options.seconds / 2 / (once * in_batch)), least, kMostBatches);
  std::vector<double> times(static_cast<size_t>(batches));
  double fastest = 0, slowest_round = 0, spent = 0;
  for (double before = 0;;) {
    for (double& entry : times) {
      entry = time(static_cast<int64_t>(in_batch)) / in_batch;
      spent += entry * in_batch;
    }
    std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
    const double round = times[times.size() / 2];
    const bool agrees = std::abs(round - before) <= kAgree * std::min(round, before);
    fastest = before == 0 ? round : std::min(fastest, round);
    slowest_round = std::max(slowest_round, round);
    if (before > 0 && (agrees || spent >= kPatience * options.seconds)) break;
    before = round;
  }
  return {fastest, fastest > 0 ? slowest_round / fastest - 1 : 0};
}

}  // namespace tessera::comm
