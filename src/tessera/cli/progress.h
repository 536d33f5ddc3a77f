#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "tessera/cli/console.h"

namespace tessera::cli {

/// Names on standard error a step that takes longer than a second, unless --quiet is given: on a terminal, for
/// how long, in a line that disappears; elsewhere, as in a log, in one line. Nothing else may be printed on the
/// terminal meanwhile, so that one phase ends before its answer is printed, and no two are inside each other.
class Progress {
 public:
  /// `what`: "compiling"
  Progress(const Console& console, std::string what);
  ~Progress() { end(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// This phase is over, and the next one begins.
  void next(std::string what);
  /// This phase is over; does nothing if it is already.
  void end();

 private:
  using Clock = std::chrono::steady_clock;

  void begin(std::string what);
  void show();
  void travel(std::unique_lock<std::mutex>& lock);

  const bool speaks_, is_terminal_;
  const Clock::duration patience_;
  std::string what_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace tessera::cli
