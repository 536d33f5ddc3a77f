#pragma once

#include <semaphore>
#include <thread>

namespace tessera::kernels {

/// While it lives, the waiting threads of all OpenMP teams of the process go to sleep almost at once, oneDNN's among
/// them. libgomp spins for milliseconds before it sleeps, but for about a microsecond only while it has more threads
/// than there are cores (see GOMP_SPINCOUNT in its manual). The threads of this team exist for that, and sleep.
/// Where the system does not give so many threads, nothing changes.
class SleepingTeams {
 public:
  SleepingTeams();
  ~SleepingTeams();
  SleepingTeams(const SleepingTeams&) = delete;
  SleepingTeams& operator=(const SleepingTeams&) = delete;

 private:
  void have_team();

  std::binary_semaphore ended_{0};
  std::thread thread_;
};

}  // namespace tessera::kernels
