#include "tessera/cli/progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace tessera::cli {

Progress::Progress(const Console& console, std::string what) : what_(std::move(what)) {
  if (!console.quiet && console.speaks() && isatty(STDERR_FILENO)) thread_ = std::thread([this] { show(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// Nobody knows how long a run takes, so the bar is a block that travels.
void Progress::show() {
  constexpr int kWidth = 20, kBlock = 5;
  constexpr auto kFrame = std::chrono::milliseconds(200);
  auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, std::chrono::seconds(1), [this] { return done_; })) return;
  for (int frame = 0; !done_; ++frame) {
    int step = frame % (2 * (kWidth - kBlock));
    int at = step < kWidth - kBlock ? step : 2 * (kWidth - kBlock) - step;
    std::string bar(kWidth, '.');
    bar.replace(static_cast<size_t>(at), kBlock, kBlock, '#');
    auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start).count();
    std::fprintf(stderr, "\r%s [%s] %lld s ", what_.c_str(), bar.c_str(), static_cast<long long>(seconds));
    changed_.wait_for(lock, kFrame, [this] { return done_; });
  }
  std::fprintf(stderr, "\r\033[K");
}

}  // namespace tessera::cli
