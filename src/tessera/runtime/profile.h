#pragma once

#include <chrono>
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
  std::vector<Clock::time_point> end;                  ///< of each step
  Clock::time_point outputs;                           ///< its parts of the outputs are stored
};

}  // namespace tessera::runtime
