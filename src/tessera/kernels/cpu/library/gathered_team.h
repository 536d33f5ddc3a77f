#pragma once

#include <vector>

namespace tessera::kernels {

/// The cores on which members of a team should be so that each `together` neighbours share one: that of the first of
/// them or, if others of the team are there already, the first free one of the allowed ones. `at`: each member's core.
///
///     at 0 1 0 1, allowed 0 1 2 3, together 2: 0 0 1 1
std::vector<int> gathered(const std::vector<int>& at, const std::vector<int>& allowed, int together);

/// Moves the members of the calling thread's OpenMP team as gathered() says; from there the kernel may move them as
/// before. Beside other work, threads that wait for each other wait for two cores, each of which somebody else may have
/// for milliseconds; threads that share a core have it, or wait, together. The kernel then leaves the others' work the
/// other cores.
void gather_team(int threads, int together);

}  // namespace tessera::kernels
