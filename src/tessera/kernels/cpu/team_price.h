#pragma once

#include <array>
#include <chrono>

namespace tessera::kernels {

/// The time that a team costs, beside its work: its threads are woken, and wait for cores that others have. Judged by
/// loops without work, of which now and then one is unlucky.
class TeamPrice {
 public:
  using Time = std::chrono::nanoseconds;

  /// An empty loop took so long.
  void note(Time loop);
  /// The median of the last three.
  Time get() const;
  void forget() { loops_ = {}; }

 private:
  std::array<Time, 3> loops_{};
  size_t next_ = 0;
};

/// Whether a team of `threads` does work sooner than the calling thread, which needs the time `alone` for it: always on
/// cores of one's own. Heeds other work.
bool team_pays(TeamPrice::Time alone, int threads);

}  // namespace tessera::kernels
