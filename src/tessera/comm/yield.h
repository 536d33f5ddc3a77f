#pragma once

#include <chrono>

namespace tessera::comm {

/// Decides whether a thread that waits should yield its core between two looks, or sleep. Work of another process keeps
/// a yielded core for milliseconds, while the kernel wakes a sleeper at once.
class Yielding {
 public:
  using Clock = std::chrono::steady_clock;

  /// Whether to yield now.
  bool pays(Clock::time_point now) const { return now >= again_; }
  /// A yield took from `begin` to `end`.
  void note(Clock::time_point begin, Clock::time_point end) {
    if (end - begin > kMoment) again_ = end + kPause;
  }

 private:
  /// In a moment, threads that look and yield in turn get their cores back; other work keeps them for longer.
  static constexpr std::chrono::microseconds kMoment{500};
  static constexpr std::chrono::milliseconds kPause{200};

  Clock::time_point again_;
};

/// Yields the calling thread's core. False if that does not pay, or if others kept the core for longer than a moment.
bool yield_for_a_moment();

}  // namespace tessera::comm
