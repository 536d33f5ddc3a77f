#include "tessera/kernels/cpu/sleeping_teams.h"

#include <omp.h>

#include <atomic>

namespace tessera::kernels {

#if defined(TESSERA_THREAD_SANITIZER) || defined(__clang__)  // teams are of one; another library has our teams
SleepingTeams::SleepingTeams() = default;
#else
SleepingTeams::SleepingTeams() : thread_([this] { have_team(); }) {}
#endif

SleepingTeams::~SleepingTeams() {
  ended_.release();
  if (thread_.joinable()) thread_.join();
}

void SleepingTeams::have_team() {
  std::atomic<int> members = 0;
#pragma omp parallel num_threads(omp_get_num_procs() + 1)
  members.fetch_add(1, std::memory_order_relaxed);
  ended_.acquire();
}

}  // namespace tessera::kernels
