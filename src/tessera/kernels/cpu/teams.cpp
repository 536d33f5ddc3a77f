#include "tessera/kernels/cpu/teams.h"

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
#include "tessera/kernels/cpu/sleeping_teams.h"
#include "tessera/kernels/cpu/spread_team.h"
#include "tessera/kernels/cpu/team_price.h"

namespace tessera::kernels {
namespace {

/// The cores as all ranks of the process find them.
class Cores {
 public:
  using Clock = Contention::Clock;

  bool are_shared(Clock::time_point now) {
    if (now.time_since_epoch().count() >= next_look_.load(std::memory_order_relaxed)) look(now);
    return shared_.load(std::memory_order_relaxed);
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
            waited() / std::chrono::milliseconds(4)};
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
    shared_.store(shared, std::memory_order_relaxed);
  }

  std::atomic<Clock::rep> next_look_{0};
  std::atomic<bool> shared_ = false;
  std::mutex mutex_;  // of what follows
  Contention contention_;
  std::unique_ptr<SleepingTeams> sleeping_;  // while cores are shared
};

/// What a rank's thread knows about its team, while cores are shared.
struct OwnTeam {
  Contention::Clock::time_point next_spread;
  TeamPrice price;
};

OwnTeam& own_team() {
  thread_local OwnTeam own;
  return own;
}

/// About how long one thread takes for an element.
constexpr std::chrono::duration<double, std::nano> kElement{0.5};

}  // namespace

int team_for(int64_t work, int threads) {
  if (threads <= 1 || work < parallel_threshold) return 1;
  if (!heed_other_work(threads)) return threads;
  const auto alone = std::chrono::duration_cast<TeamPrice::Time>(static_cast<double>(work) * kElement);
  return (threads - 1) * alone / threads > own_team().price.get() ? threads : 1;
}

bool heed_other_work(int threads) {
  using Clock = Contention::Clock;
  constexpr std::chrono::milliseconds kBetweenSpreads{10};
  constexpr int kSpreadsShare = 20;  // of the time at most one part in so many
  static auto* cores = new Cores;    // NB never destroyed: threads may compute while the process ends
  const Clock::time_point now = Clock::now();
  const bool shared = cores->are_shared(now);
  OwnTeam& own = own_team();
  if (!shared) {
    own.price.forget();
  } else if (now >= own.next_spread) {
    spread_team(threads);
    const Clock::time_point end = Clock::now();
    own.price.note(end - now);
    own.next_spread = end + std::max<Clock::duration>(kBetweenSpreads, kSpreadsShare * (end - now));
  }
  return shared;
}

}  // namespace tessera::kernels
