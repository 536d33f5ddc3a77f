#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace tessera::runtime {

/// The description of a step of a rank's plan, for profiles. A communication has two steps: its start and its wait.
struct StepInfo {
  std::string name;  ///< of the node, or of its first result
  std::string op;
  bool communication = false;
  std::vector<std::string> axes;  ///< of a communication: of the mesh, as the node names them
  int leader = 0;                 ///< of a communication: the first rank of the group
  int started = -1;               ///< of a wait: the step that is the start
};

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
