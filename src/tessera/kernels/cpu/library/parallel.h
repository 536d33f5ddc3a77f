#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "tessera/kernels/cpu/library/dispatch.h"

namespace tessera::kernels {

/// The most members of a team that shares out items.
constexpr int64_t most_members = 512;

/// Calls `body(item, member)` for each item of [0, count). Each member of the team takes a range of its own in order,
/// one item at a time, and then, if `all_take_all`, what others have not begun.
template <typename Body>
void share_out(int64_t count, int64_t team, bool all_take_all, Body&& body) {
  struct alignas(64) Range {
    int64_t next, end;
  };
  std::array<Range, most_members> ranges;
  for (int64_t t = 0; t < team; ++t) ranges[t] = {count * t / team, count * (t + 1) / team};
#pragma omp parallel for num_threads(team) schedule(static, 1)
  for (int64_t t = 0; t < team; ++t)
    for (int64_t other = 0; other < (all_take_all ? team : 1); ++other) {
      Range& range = ranges[(t + other) % team];
      std::atomic_ref next(range.next);
      for (int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < range.end;) body(item, t);
    }
}

/// Calls `body(begin, end)` on ranges that cover [0, count), one per thread of the team that `work` (elements touched)
/// is worth. Beside other work there are more ranges, so that a thread that does not get its core takes fewer of them.
/// Ranges begin at multiples of 64, if there are as many for each. `body` must not throw.
template <typename Body>
void for_ranges(int64_t count, int64_t work, int threads, Body&& body) {
  constexpr int64_t kRangesOfMember = 4;
  if (count <= 0) return;
  const int64_t team = std::min({int64_t{team_for(work, threads)}, count, most_members});
  if (team <= 1) {
    body(int64_t{0}, count);
    return;
  }
  const bool shared = heed_other_work(threads);
  const int64_t ranges = shared ? std::min(count, team * kRangesOfMember) : team;
  const int64_t step = count >= 64 * ranges ? (count / ranges + 63) / 64 * 64 : (count + ranges - 1) / ranges;
  share_out(ranges, team, shared, [&](int64_t range, int64_t) {
    const int64_t begin = std::min(count, range * step);
    const int64_t end = range + 1 == ranges ? count : std::min(count, begin + step);
    if (begin < end) body(begin, end);
  });
}

/// Calls `body(item, member)` for each item of [0, count), items of equal work, which lie in memory one after the
/// other. Each member of the team that `work` (elements touched) is worth takes a range of its own in order, so that it
/// streams through memory, and then what the others have not begun. Members are numbered from 0, and do one item at a
/// time. `body` must not throw.
template <typename Body>
void for_stream(int64_t count, int64_t work, int threads, Body&& body) {
  const int64_t team = std::min({int64_t{team_for(work, threads)}, count, most_members});
  if (team <= 1)
    for (int64_t item = 0; item < count; ++item) body(item, int64_t{0});
  else
    share_out(count, team, true, body);
}

}  // namespace tessera::kernels
