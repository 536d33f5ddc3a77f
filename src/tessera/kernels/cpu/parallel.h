#pragma once

#include <algorithm>
#include <array>
#include <atomic>
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

/// Calls `body(item, member)` for each item of [0, count), items of equal work, which lie in memory one after the
/// other. Each member of the team that `work` (elements touched) is worth takes a range of its own in order, so that it
/// streams through memory, and then what the others have not begun. Members are numbered from 0, and do one item at a
/// time. `body` must not throw. Teams have 128 members at most.
template <typename Body>
void for_stream(int64_t count, int64_t work, int threads, Body&& body) {
  constexpr int64_t kMostMembers = 128;
  const int64_t team = std::min({int64_t{team_for(work, threads)}, count, kMostMembers});
  if (team <= 1) {
    for (int64_t item = 0; item < count; ++item) body(item, int64_t{0});
    return;
  }
  struct alignas(64) Range {
    std::atomic<int64_t> next;
    int64_t end;
  };
  std::array<Range, kMostMembers> ranges;
  for (int64_t t = 0; t < team; ++t) {
    ranges[t].next.store(count * t / team, std::memory_order_relaxed);
    ranges[t].end = count * (t + 1) / team;
  }
#pragma omp parallel for num_threads(team) schedule(static, 1)
  for (int64_t t = 0; t < team; ++t)
    for (int64_t other = 0; other < team; ++other) {
      Range& range = ranges[(t + other) % team];
      for (int64_t item; (item = range.next.fetch_add(1, std::memory_order_relaxed)) < range.end;) body(item, t);
    }
}

}  // namespace tessera::kernels
