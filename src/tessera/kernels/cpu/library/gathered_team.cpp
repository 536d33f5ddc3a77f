#include "tessera/kernels/cpu/library/gathered_team.h"

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

std::vector<int> gathered(const std::vector<int>& at, const std::vector<int>& allowed, int together) {
  std::vector<int> to(at.size()), taken;
  const auto is_taken = [&](int core) { return std::find(taken.begin(), taken.end(), core) != taken.end(); };
  for (size_t member = 0; member < at.size(); ++member) {
    if (member % static_cast<size_t>(together) == 0) {
      const auto free = std::find_if_not(allowed.begin(), allowed.end(), is_taken);
      taken.push_back(is_taken(at[member]) && free != allowed.end() ? *free : at[member]);
    }
    to[member] = taken.back();
  }
  return to;
}

#ifdef TESSERA_THREAD_SANITIZER
void gather_team(int, int) {}  // teams of one, since libgomp's barriers are not instrumented
#else
void gather_team(int threads, int together) {
  cpu_set_t allowed;
  if (omp_in_parallel() || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::vector<int> at, to;
#pragma omp parallel num_threads(threads)
  {
    const auto member = static_cast<size_t>(omp_get_thread_num());
#pragma omp single
    at.resize(static_cast<size_t>(omp_get_num_threads()));
    at[member] = sched_getcpu();
#pragma omp barrier
#pragma omp single
    to = gathered(at, cores_of(allowed), together);
    if (to[member] != at[member]) move_to(to[member], allowed);
  }
}
#endif

}  // namespace tessera::kernels
