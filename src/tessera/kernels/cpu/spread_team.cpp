#include "tessera/kernels/cpu/spread_team.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>

namespace tessera::kernels {
namespace {

std::vector<int> cores_of(const cpu_set_t& set) {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

// A thread moves at once to a core that it must not leave, and stays for a while where it may.
void move_to(int core, const cpu_set_t& allowed) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  if (sched_setaffinity(0, sizeof one, &one) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace

std::vector<int> spread_of(const std::vector<int>& at, const std::vector<int>& allowed) {
  std::vector<int> free;
  for (const int core : allowed)
    if (std::find(at.begin(), at.end(), core) == at.end()) free.push_back(core);
  std::vector<int> to(at.size(), -1);
  auto next = free.begin();
  for (size_t member = 0; member < at.size() && next != free.end(); ++member) {
    const auto earlier = std::find(at.begin(), at.end(), at[member]) - at.begin();
    if (at[member] >= 0 && static_cast<size_t>(earlier) < member) to[member] = *next++;
  }
  return to;
}

#ifdef TESSERA_THREAD_SANITIZER
void spread_team(int) {}  // teams of one, since libgomp's barriers are not instrumented
#else
void spread_team(int threads) {
  cpu_set_t allowed;
  if (omp_in_parallel() || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::vector<int> at(static_cast<size_t>(threads), -1), to;  // -1: not a member, where OpenMP gives fewer threads
#pragma omp parallel num_threads(threads)
  {
    const auto member = static_cast<size_t>(omp_get_thread_num());
    at[member] = sched_getcpu();
#pragma omp barrier
#pragma omp single
    to = spread_of(at, cores_of(allowed));
    if (to[member] >= 0) move_to(to[member], allowed);
  }
}
#endif

}  // namespace tessera::kernels
