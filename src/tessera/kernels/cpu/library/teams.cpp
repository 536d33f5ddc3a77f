#include "tessera/kernels/cpu/library/teams.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
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

  /// Whether other work shares them.
  bool are_shared(Clock::time_point now) {
    if (now.time_since_epoch().count() >= next_look_.load(std::memory_order_relaxed)) look(now);
    return shared_.load(std::memory_order_relaxed);
  }
  /// Contention::cores_for().
  int of_team(int threads) {
    const std::lock_guard lock(mutex_);
    return contention_.cores_for(threads);
  }

 private:
  static constexpr std::chrono::milliseconds kBetweenLooks{20};
  static constexpr int kLooksShare = 200;  // of the time at most one part in so many

  // The time for which threads waited for a core, also those that have ended; 0 where the kernel does not say.
  std::chrono::nanoseconds waited() {
    std::map<std::string, int64_t> by_thread;
    std::error_code ended;  // a thread may end at any time
    for (std::filesystem::directory_iterator task("/proc/self/task", ended), end; task != end; task.increment(ended)) {
      std::ifstream times(task->path() / "schedstat");
      int64_t on_cores = 0, waiting = 0;
      if (!(times >> on_cores >> waiting)) continue;
      const std::string thread = task->path().filename();
      const auto known = waited_.find(thread);
      const int64_t before = known == waited_.end() || known->second > waiting ? 0 : known->second;
      all_waited_ += std::chrono::nanoseconds(waiting - before);
      by_thread.emplace(thread, waiting);
    }
    waited_ = std::move(by_thread);
    return all_waited_;
  }

  Contention::Usage usage() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return {std::chrono::seconds(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                std::chrono::microseconds(used.ru_utime.tv_usec + used.ru_stime.tv_usec),
            std::chrono::duration_cast<std::chrono::microseconds>(waited())};
  }

  void look(Clock::time_point now) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    const bool shared = contention_.look(now, usage());
    const Clock::time_point end = Clock::now();
    next_look_.store(
        (end + std::max<Clock::duration>(kBetweenLooks, kLooksShare * (end - now))).time_since_epoch().count(),
        std::memory_order_relaxed);
    if (shared == (sleeping_ != nullptr)) return;
    sleeping_ = shared ? std::make_unique<SleepingTeams>() : nullptr;
    shared_.store(shared, std::memory_order_relaxed);
  }

  std::atomic<Clock::rep> next_look_{0};
  std::atomic<bool> shared_ = false;
  std::mutex mutex_;  // of what follows
  Contention contention_;
  std::map<std::string, int64_t> waited_;  // nanoseconds, by thread
  std::chrono::nanoseconds all_waited_{0};
  std::unique_ptr<SleepingTeams> sleeping_;  // while cores are shared
};

/// What a rank's thread knows about its team.
struct OwnTeam {
  Contention::Clock::time_point next_move;
  int cores = 0;  ///< on which its members are; 0: wherever the kernel has put them
};

// Takes a look if one is due, and moves this thread's team onto as many cores as it gets. Returns their number; 0: the
// machine is not shared.
int settle_team(int threads) {
  using Clock = Contention::Clock;
  constexpr std::chrono::milliseconds kBetweenMoves{10};
  constexpr int kMovesShare = 20;  // of the time at most one part in so many
  static auto* cores = new Cores;  // NB never destroyed: threads may compute while the process ends
  thread_local OwnTeam own;
  const Clock::time_point now = Clock::now();
  if (!cores->are_shared(now)) {
    if (own.cores > 0) gather_team(threads, threads);
    own = {};
  } else if (now >= own.next_move) {
    own.cores = cores->of_team(threads);
    gather_team(threads, own.cores);
    const Clock::time_point end = Clock::now();
    own.next_move = end + std::max<Clock::duration>(kBetweenMoves, kMovesShare * (end - now));
  }
  return own.cores;
}

}  // namespace

int team_for(int64_t work, int threads) {
  if (threads <= 1 || work < parallel_threshold) return 1;
  return settle_team(threads) == 1 ? 1 : threads;
}

bool heed_other_work(int threads) {
  return settle_team(threads) > 0;
}

}  // namespace tessera::kernels
