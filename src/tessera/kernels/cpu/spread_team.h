#pragma once

#include <vector>

namespace tessera::kernels {

/// Where members of a team should go that share a core with an earlier member: to the allowed cores on which none is,
/// in order. `at`: each member's core. -1: stays.
///
///     at 0 0 1 1, allowed 0 1 2 3: stays, 2, stays, 3
std::vector<int> spread_of(const std::vector<int>& at, const std::vector<int>& allowed);

/// Moves members of the calling thread's OpenMP team that share a core apart; from there the kernel may move them as
/// before. Beside other work the kernel leaves two threads that wait for each other on one core, as each of them sleeps
/// half of the time.
void spread_team(int threads);

}  // namespace tessera::kernels
