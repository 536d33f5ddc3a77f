#pragma once

#include <chrono>
#include <cstdint>

namespace tessera::kernels {

/// Judges whether other work wants the cores on which this process computes. The sign of it is that threads that could
/// go on wait for a core: beside busy processes, for about as long as they compute. The kernel's own threads take cores
/// now and then, and so do threads of the process itself, for moments; so much waiting is forgiven. (To count how often
/// a thread loses its core does not tell the two apart.)
///
///     losses   0 0 1 0 0 0 | 1 1 1 1 1 …                     | 0 0 0 0 …  | 0 0 0 …
///     answer   alone       | shared, from the fourth loss on | shared     | alone, once a whole patience was quiet
///
/// Where teams sleep instead of spinning, threads lose their cores less often, or not at all. Hence quiet is no proof
/// that a machine is free again, and the answer "alone" is a trial: if losses follow soon, the next patience is twice
/// as long.
class Contention {
 public:
  using Clock = std::chrono::steady_clock;

  /// What all threads of the process have had up to now.
  struct Had {
    std::chrono::microseconds cores{0};  ///< time on cores
    int64_t losses = 0;                  ///< turns of others that they waited for: of 4 ms each
  };

  /// Takes a look; looks may come at any distance. What came before the first one counts. Returns is_shared().
  bool look(Clock::time_point now, const Had& had);
  bool is_shared() const { return shared_; }

 private:
  static constexpr double kForgiven = 60;  ///< losses per second on cores
  static constexpr double kMost = 3;       ///< unforgiven losses that a process may have and be alone
  static constexpr std::chrono::milliseconds kShortest{250}, kLongest{4000}, kSoon{250};

  double level_ = 0;  ///< unforgiven losses
  bool shared_ = false;
  Had had_;                  ///< at the last look
  Clock::time_point since_;  ///< the begin of this patience
  Clock::time_point tried_;  ///< the end of the last one
  std::chrono::milliseconds patience_ = kShortest;
};

}  // namespace tessera::kernels
