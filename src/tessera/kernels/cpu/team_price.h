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

}  // namespace tessera::kernels
