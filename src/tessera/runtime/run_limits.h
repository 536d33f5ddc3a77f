#pragma once

#include <chrono>
#include <optional>
#include <stop_token>

#include "tessera/base/error.h"

namespace tessera::runtime {

/// When a run ends without a result. Ranks check this before each operator.
struct RunLimits {
  using Clock = std::chrono::steady_clock;

  static constexpr const char* kStage = "limit";

  std::stop_token stop;
  std::optional<Clock::time_point> deadline;

  /// Throws a running error if the run is to end.
  void require_going_on() const {
    if (stop.stop_requested()) fail_running(kStage, "the run was stopped by its caller");
    if (deadline && Clock::now() >= *deadline) fail_running(kStage, "the run has passed its deadline");
  }
};

}  // namespace tessera::runtime
