#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "tessera/cli/console.h"

namespace tessera::cli {

/// While it lives, and after its first second, shows a line on standard error that says what is going on and for how
/// long, if standard error is a terminal. Leaves nothing behind.
class Progress {
 public:
  Progress(const Console& console, std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void show();

  std::string what_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace tessera::cli
