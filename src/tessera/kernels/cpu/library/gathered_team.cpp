#include "tessera/kernels/cpu/library/gathered_team.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::kernels {

std::vector<int> gathered(const std::vector<int>& at, const std::vector<int>& allowed, int cores) {
  check(cores >= 1, "a team has a core");
  const size_t members = at.size(), groups = std::min(static_cast<size_t>(cores), std::max<size_t>(members, 1));
  std::vector<int> to(members), taken;
  const auto is_taken = [&](int core) { return std::find(taken.begin(), taken.end(), core) != taken.end(); };
  for (size_t member = 0; member < members; ++member) {
    const size_t group = member * groups / members;  // balanced
    if (group == taken.size()) {
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
namespace {

std::vector<int> cores_of(const cpu_set_t& set) {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

// A thread moves at once to a core that it must not leave, and stays for a while where it may.
void move_to(int core, const cpu_set_t& allowed) {
  cpu_set_t one, all;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0 || sched_setaffinity(0, sizeof allowed, &allowed) == 0) return;
  std::fill_n(reinterpret_cast<unsigned char*>(&all), sizeof all, 0xff);  // the system takes away what is not ours
  sched_setaffinity(0, sizeof all, &all);
}

}  // namespace

void gather_team(int threads, int cores) {
  cpu_set_t allowed;
  if (omp_in_parallel() || omp_get_proc_bind() != omp_proc_bind_false) return;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::vector<int> at, to;
  bool are_alike = true;
#pragma omp parallel num_threads(threads) reduction(&& : are_alike)
  {
    const auto member = static_cast<size_t>(omp_get_thread_num());
    cpu_set_t own;
    are_alike = sched_getaffinity(0, sizeof own, &own) == 0 && CPU_EQUAL(&own, &allowed);
#pragma omp single
    at.resize(static_cast<size_t>(omp_get_num_threads()));
    at[member] = sched_getcpu();
  }
  if (!are_alike) return;
  to = gathered(at, cores_of(allowed), cores);
#pragma omp parallel num_threads(threads)
  {
    const auto member = static_cast<size_t>(omp_get_thread_num());
    if (member < to.size() && to[member] != at[member]) move_to(to[member], allowed);
  }
}
#endif

}  // namespace tessera::kernels
