#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/kernels/cpu/dispatch.h"

namespace tessera::kernels {

/// Calls `body(begin, end)` on ranges that cover [0, count), one per thread of the team that `work` (elements touched)
/// is worth. Ranges begin at multiples of 64. `body` must not throw.
template <typename Body>
void for_ranges(int64_t count, int64_t work, int threads, Body&& body) {
  if (count <= 0) return;
  const int64_t team = std::min<int64_t>(team_for(work, threads), count);
  if (team <= 1) {
    body(int64_t{0}, count);
    return;
  }
  const int64_t step = count >= 64 * team ? (count / team + 63) / 64 * 64 : (count + team - 1) / team;
#pragma omp parallel for num_threads(team) schedule(static, 1)
  for (int64_t part = 0; part < team; ++part) {
    const int64_t begin = std::min(count, part * step);
    const int64_t end = part + 1 == team ? count : std::min(count, begin + step);
    if (begin < end) body(begin, end);
  }
}

}  // namespace tessera::kernels
