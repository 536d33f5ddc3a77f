#include "tessera/kernels/cpu/library/parallel.h"

#include <array>
#include <atomic>

namespace tessera::kernels {

void share_out(int64_t count, int64_t team, bool all_take_all, FunctionRef<void(int64_t, int64_t)> body) {
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

void for_ranges(int64_t count, int64_t work, int threads, FunctionRef<void(int64_t, int64_t)> body) {
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

void for_stream(int64_t count, int64_t work, int threads, FunctionRef<void(int64_t, int64_t)> body) {
  const int64_t team = std::min({int64_t{team_for(work, threads)}, count, most_members});
  if (team <= 1)
    for (int64_t item = 0; item < count; ++item) body(item, int64_t{0});
  else
    share_out(count, team, true, body);
}

}  // namespace tessera::kernels
