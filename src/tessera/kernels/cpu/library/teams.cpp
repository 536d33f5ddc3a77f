#include "tessera/kernels/cpu/library/teams.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

#include "tessera/kernels/contention.h"
#include "tessera/kernels/cpu/library/gathered_team.h"
#include "tessera/kernels/cpu/library/sleeping_teams.h"

namespace tessera::kernels {
namespace {

/// The cores as all ranks of the process find them.
class Cores {
 public:
  using Clock = Contention::Clock;

  /// Contention::threads_per_core().
  int threads_per_core(Clock::time_point now) {
    if (now.time_since_epoch().count() >= next_look_.load(std::memory_order_relaxed)) look(now);
    return threads_per_core_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::chrono::milliseconds kBetweenLooks{20};
  static constexpr int kLooksShare = 200;  // of the time at most one part in so many

  // The time for which threads waited for a core; 0 where the kernel does not say.
  static std::chrono::nanoseconds waited() {
    std::chrono::nanoseconds all{0};
    std::error_code ended;  // a thread may end at any time
    for (std::filesystem::directory_iterator task("/proc/self/task", ended), end; task != end; task.increment(ended)) {
      std::ifstream times(task->path() / "schedstat");
      int64_t on_cores = 0, waiting = 0;
      if (times >> on_cores >> waiting) all += std::chrono::nanoseconds(waiting);
    }
    return all;
  }

  static Contention::Had had() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return {std::chrono::seconds(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                std::chrono::microseconds(used.ru_utime.tv_usec + used.ru_stime.tv_usec),
            std::chrono::duration_cast<std::chrono::microseconds>(waited())};
  }

  void look(Clock::time_point now) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    const bool shared = contention_.look(now, had());
    const Clock::time_point end = Clock::now();
    next_look_.store(
        (end + std::max<Clock::duration>(kBetweenLooks, kLooksShare * (end - now))).time_since_epoch().count(),
        std::memory_order_relaxed);
    if (shared == (sleeping_ != nullptr)) return;
    sleeping_ = shared ? std::make_unique<SleepingTeams>() : nullptr;
    threads_per_core_.store(contention_.threads_per_core(), std::memory_order_relaxed);
  }

  std::atomic<Clock::rep> next_look_{0};
  std::atomic<int> threads_per_core_ = 0;
  std::mutex mutex_;  // of what follows
  Contention contention_;
  std::unique_ptr<SleepingTeams> sleeping_;  // while cores are shared
};

// Of this thread's team. Returns Contention::threads_per_core().
int settle_team(int threads) {
  using Clock = Contention::Clock;
  constexpr std::chrono::milliseconds kBetweenMoves{10};
  constexpr int kMovesShare = 20;  // of the time at most one part in so many
  static auto* cores = new Cores;  // NB never destroyed: threads may compute while the process ends
  thread_local Clock::time_point next_move;
  const Clock::time_point now = Clock::now();
  const int together = cores->threads_per_core(now);
  if (together > 1 && now >= next_move) {
    gather_team(threads, together);
    const Clock::time_point end = Clock::now();
    next_move = end + std::max<Clock::duration>(kBetweenMoves, kMovesShare * (end - now));
  }
  return together;
}

}  // namespace

int team_for(int64_t work, int threads) {
  if (threads <= 1 || work < parallel_threshold) return 1;
  const int together = std::max(1, settle_team(threads));
  return (threads + together - 1) / together;
}

bool heed_other_work(int threads) {
  return settle_team(threads) > 0;
}

}  // namespace tessera::kernels
