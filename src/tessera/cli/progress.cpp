#include "tessera/cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tessera::cli {
namespace {

// TESSERA_PROGRESS_AFTER, in seconds; 0: every phase is named, however short.
std::chrono::steady_clock::duration patience() {
  double seconds = 1;
  if (const char* given = std::getenv("TESSERA_PROGRESS_AFTER")) {
    char* end = nullptr;
    const double number = std::strtod(given, &end);
    if (end != given && *end == '\0' && number >= 0 && number < 1e6) seconds = number;
  }
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Progress::Progress(const Console& console, std::string what)
    : speaks_(!console.quiet && console.speaks()), is_terminal_(isatty(STDERR_FILENO) != 0), patience_(patience()) {
  begin(std::move(what));
}

void Progress::next(std::string what) {
  end();
  begin(std::move(what));
}

void Progress::begin(std::string what) {
  what_ = std::move(what);
  done_ = false;
  if (!speaks_) return;
  if (!is_terminal_ && patience_ == Clock::duration::zero())
    std::fprintf(stderr, "%s …\n", what_.c_str());
  else
    thread_ = std::thread([this] { show(); });
}

void Progress::end() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Progress::show() {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, patience_, [this] { return done_; })) return;
  if (is_terminal_)
    travel(lock);
  else
    std::fprintf(stderr, "%s …\n", what_.c_str());
}

// Nobody knows how long a phase takes, so the bar is a block that travels.
void Progress::travel(std::unique_lock<std::mutex>& lock) {
  constexpr int kWidth = 20, kBlock = 5;
  constexpr auto kFrame = std::chrono::milliseconds(200);
  const Clock::time_point start = Clock::now() - patience_;
  for (int frame = 0; !done_; ++frame) {
    int step = frame % (2 * (kWidth - kBlock));
    int at = step < kWidth - kBlock ? step : 2 * (kWidth - kBlock) - step;
    std::string bar(kWidth, '.');
    bar.replace(static_cast<size_t>(at), kBlock, kBlock, '#');
    auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start).count();
    std::fprintf(stderr, "\r\033[K%s [%s] %lld s ", what_.c_str(), bar.c_str(), static_cast<long long>(seconds));
    changed_.wait_for(lock, kFrame, [this] { return done_; });
  }
  std::fprintf(stderr, "\r\033[K");
}

}  // namespace tessera::cli
