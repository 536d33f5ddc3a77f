#include "tessera/kernels/cpu/teams.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "tessera/kernels/contention.h"
#include "tessera/kernels/cpu/sleeping_teams.h"
#include "tessera/kernels/cpu/spread_team.h"

namespace tessera::kernels {
namespace {

/// The cores as all ranks of the process find them.
class Cores {
 public:
  using Clock = Contention::Clock;

  Cores() {
    // What the process lost before, over the time for which it computed.
    const rusage used = used_so_far();
    const auto computed = std::chrono::seconds(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                          std::chrono::microseconds(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    contention_.look(Clock::now() - computed, 0);
  }

  bool are_shared(Clock::time_point now) {
    if (now.time_since_epoch().count() >= next_look_.load(std::memory_order_relaxed)) look(now);
    return shared_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::chrono::milliseconds kBetweenLooks{4};
  /// Losses per second: beside one busy process there are 185 or more, on a machine of one's own a few per core.
  static constexpr double kForgiven = 80, kForgivenPerCore = 2;

  static rusage used_so_far() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return used;
  }

  void look(Clock::time_point now) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    next_look_.store((now + kBetweenLooks).time_since_epoch().count(), std::memory_order_relaxed);
    const bool shared = contention_.look(now, used_so_far().ru_nivcsw);
    if (shared == (sleeping_ != nullptr)) return;
    sleeping_ = shared ? std::make_unique<SleepingTeams>() : nullptr;
    shared_.store(shared, std::memory_order_relaxed);
  }

  std::atomic<Clock::rep> next_look_{0};
  std::atomic<bool> shared_ = false;
  std::mutex mutex_;  // of what follows
  Contention contention_{kForgiven + kForgivenPerCore * std::thread::hardware_concurrency()};
  std::unique_ptr<SleepingTeams> sleeping_;  // while cores are shared
};

/// As parallel_threshold, where other work shares the cores.
constexpr int64_t kSharedThreshold = 8 * parallel_threshold;

}  // namespace

int team_for(int64_t work, int threads) {
  if (threads <= 1 || work < parallel_threshold) return 1;
  return heed_other_work(threads) && work < kSharedThreshold ? 1 : threads;
}

bool heed_other_work(int threads) {
  using Clock = Contention::Clock;
  constexpr std::chrono::milliseconds kBetweenSpreads{10};
  constexpr int kSpreadsShare = 20;  // of the time at most one part in so many
  static auto* cores = new Cores;    // NB never destroyed: threads may compute while the process ends
  thread_local Clock::time_point next_spread;
  const Clock::time_point now = Clock::now();
  const bool shared = cores->are_shared(now);
  if (shared && now >= next_spread) {
    spread_team(threads);
    const Clock::time_point end = Clock::now();
    next_spread = end + std::max<Clock::duration>(kBetweenSpreads, kSpreadsShare * (end - now));
  }
  return shared;
}

}  // namespace tessera::kernels
