#include "tessera/kernels/cpu/library/sleeping_teams.h"

#include <omp.h>

#include <atomic>
#include <latch>
#include <system_error>
#include <vector>

namespace tessera::kernels {

#if defined(TESSERA_THREAD_SANITIZER) || defined(__clang__)  // teams are of one; another library has our teams
SleepingTeams::SleepingTeams() = default;
#else
namespace {

int most_threads() {
  return omp_get_num_procs() + 1;
}

// libgomp ends the process where the system gives it no thread.
bool can_have(int threads) {
  std::vector<std::thread> tried;
  std::latch all(1);
  bool had = true;
  try {
    while (std::ssize(tried) < threads) tried.emplace_back([&] { all.wait(); });
  } catch (const std::system_error&) {
    had = false;
  }
  all.count_down();
  for (std::thread& thread : tried) thread.join();
  return had;
}

}  // namespace

SleepingTeams::SleepingTeams() {
  if (can_have(most_threads())) thread_ = std::thread([this] { have_team(); });
}

void SleepingTeams::have_team() {
  std::atomic<int> members = 0;
#pragma omp parallel num_threads(most_threads())
  members.fetch_add(1, std::memory_order_relaxed);
  ended_.acquire();
}
#endif

SleepingTeams::~SleepingTeams() {
  ended_.release();
  if (thread_.joinable()) thread_.join();
}

}  // namespace tessera::kernels
