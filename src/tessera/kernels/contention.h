#pragma once

#include <chrono>
#include <cstdint>

namespace tessera::kernels {

/// Judges whether other work wants the cores on which this process computes. The sign of it is that threads that could
/// go on wait for a core: beside busy processes, for about as long as they compute. The kernel's own threads take cores
/// now and then, and so do threads of the process itself, for moments; so much waiting is forgiven. (To count how often
/// a thread loses its core does not tell the two apart.)
///
///     turns waited for   0 0 1 0 0 0 | 1 1 1 1 1 …                     | 1 1 …                          | 0 0 0 …
///     answer             alone       | shared, from the fourth turn on | a trial, which the next ends   | alone
///
/// While the answer is "shared", the process' own threads share cores and wait for each other, so that waiting says
/// nothing. Hence it ends after a patience with a trial: the answer "alone", until a thread waits for a turn again. If
/// that comes soon, the next patience is twice as long.
class Contention {
 public:
  using Clock = std::chrono::steady_clock;

  /// What all threads of the process have had up to now.
  struct Had {
    std::chrono::microseconds cores{0};   ///< time on cores
    std::chrono::microseconds waited{0};  ///< time for which they waited for a core
  };

  /// Takes a look; looks may come at any distance. What came before the first one counts. Returns is_shared().
  bool look(Clock::time_point now, const Had& had);
  bool is_shared() const { return threads_per_core_ > 0; }
  /// How many threads that would use a core each should share one, so that the process asks for no more than what it
  /// gets beside the others: about the inverse of its share. 0: alone.
  int threads_per_core() const { return threads_per_core_; }

 private:
  static constexpr std::chrono::microseconds kTurn{4000};  ///< for which others have a core
  static constexpr double kForgiven = 60;                  ///< turns per second on cores
  static constexpr double kMost = 3;                       ///< unforgiven turns beside which a process is alone
  static constexpr std::chrono::milliseconds kShortest{500}, kLongest{4000};
  static constexpr std::chrono::milliseconds kSoon{250};  ///< on cores

  void begin_sharing(Clock::time_point now);

  double level_ = 0;               ///< unforgiven turns
  double cores_ = 0, waited_ = 0;  ///< of late, in microseconds
  int threads_per_core_ = 0;
  Had had_;                              ///< at the last look
  Clock::time_point since_;              ///< the begin of this patience
  std::chrono::microseconds tried_{-1};  ///< the time on cores when the last trial began; negative: there was none
  std::chrono::milliseconds patience_ = kShortest;
};

}  // namespace tessera::kernels
