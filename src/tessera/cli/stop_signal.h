#pragma once

#include <atomic>

namespace tessera::cli {

/// While it lives, SIGTERM and SIGUSR1 ask for an end after the step instead of ending the process; in a process that
/// has started ranks, they ask these. (Launchers that kill soon after a SIGTERM pass SIGUSR1 on and do no more.)
class StopSignal {
 public:
  enum class Of { this_process, spawned_ranks };
  explicit StopSignal(Of whom);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  bool asked() const { return asked_; }

 private:
  std::atomic<bool> asked_ = false;
};

}  // namespace tessera::cli
