#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>

#include "tessera/base/error.h"

namespace tessera::runtime {

/// When a run ends without a result. Ranks check this before each operator, and while they wait for a device.
struct RunLimits {
  using Clock = std::chrono::steady_clock;

  static constexpr const char* kStage = "limit";

  std::stop_token stop;
  std::optional<Clock::time_point> deadline;

  bool is_any() const { return stop.stop_possible() || deadline; }
  bool has_passed() const { return stop.stop_requested() || (deadline && Clock::now() >= *deadline); }
  /// Throws a running error if the run is to end.
  void require_going_on() const {
    if (stop.stop_requested()) fail_running(kStage, "the run was stopped by its caller");
    if (deadline && Clock::now() >= *deadline) fail_running(kStage, "the run has passed its deadline");
  }
};

/// Where ranks that run the same communications in the same order stop when limits end their run: each once it has
/// begun as many communications as any other, so that nobody waits for a rank that has stopped. Thread-safe.
///
/// Example: rank 0 has begun 5 communications as it sees that the deadline has passed, and rank 1 has begun 3. Rank 1
/// goes on to its fifth, and stops before its sixth; rank 0 stops at once, and waits for those that it has begun.
class StopPoint {
 public:
  /// Asked before each operator by a rank that has begun so many communications. Whether the rank stops there.
  bool stops(int64_t begun, bool begins_another, const RunLimits& limits) {
    const bool has_passed = limits.has_passed();
    if (!begins_another && !has_passed && !stopping_) return false;
    const std::lock_guard lock(mutex_);
    if (has_passed) stopping_ = true;
    if (stopping_) return begun >= furthest_;
    if (begins_another) furthest_ = std::max(furthest_, begun + 1);
    return false;
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> stopping_ = false;
  int64_t furthest_ = 0;  // communications that some rank has begun, or is about to
};

}  // namespace tessera::runtime
