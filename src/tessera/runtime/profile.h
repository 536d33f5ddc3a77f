#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "tessera/bind/machine.h"

namespace tessera::runtime {

using bind::StepInfo;

/// The times of a rank's last run. All ranks share the clock.
struct RankTimes {
  using Clock = std::chrono::steady_clock;
  std::shared_ptr<const std::vector<StepInfo>> steps;  ///< of the plan that ran
  Clock::time_point begin;                             ///< the rank begins the run
  Clock::time_point inputs;                            ///< its parts of the inputs are ready
  /// A step that ran, and when it ended. It began when the step before it ended.
  struct Done {
    size_t step = 0;
    Clock::time_point end;
    size_t bytes = 0;  ///< of a communication: those that the rank receives, or sends
  };
  std::deque<Done>
      done;  ///< in running order; steps of a loop once for each iteration, those of a branch if it is taken
  Clock::time_point outputs;  ///< its parts of the outputs are stored
};

}  // namespace tessera::runtime
