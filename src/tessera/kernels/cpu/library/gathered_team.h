#pragma once

#include <vector>

namespace tessera::kernels {

/// The core for each member of a team, so that the team uses `cores` of them: neighbours share one, as many as it
/// takes. A group goes to the core of its first member or, if an earlier group has that core, to the first allowed core
/// that no group has. `at`: the core of each member now. `cores`: at least 1.
///
///     at 0 1 0 1, allowed 0 1 2 3, 2 cores: 0 0 1 1
std::vector<int> gathered(const std::vector<int>& at, const std::vector<int>& allowed, int cores);

/// Moves the members of the calling thread's OpenMP team as gathered() says; from there the kernel may move them as
/// before. With as many cores as threads, members that share a core are moved apart. Nothing moves where threads are
/// bound to places, or may use different cores.
///
/// Beside other work, each of two threads on two cores would wait for the other, which is off its core for
/// milliseconds. On one core they run and wait together, and the kernel gives the other cores to the others' work.
void gather_team(int threads, int cores);

}  // namespace tessera::kernels
