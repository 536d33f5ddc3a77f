#pragma once

#include <chrono>

namespace tessera::kernels {

/// Judges whether other work needs the cores on which this process computes. It shows in threads that are ready to run
/// and wait for a core: beside busy processes, for about as long as they compute. The kernel's own threads take cores
/// now and then, and so do threads of the process itself, for moments; so much waiting is forgiven. (To count how often
/// a thread loses its core does not tell the two apart.)
///
///     turns waited for   0 0 1 0 0 0 | 1 1 1 1 1 …                     | 1                              | 0 0 0 …
///     answer             alone       | shared, from the fourth turn on | alone, a trial that this ends  | alone
///
/// While the answer is "shared", the process' own threads share cores and wait for each other, so that waiting says
/// nothing. Hence it ends after a patience with a trial: the answer "alone", until threads wait again. If they do soon,
/// the next patience is twice as long.
class Contention {
 public:
  using Clock = std::chrono::steady_clock;

  /// What all threads of the process have used up to now.
  struct Usage {
    std::chrono::microseconds cores{0};   ///< time on cores
    std::chrono::microseconds waited{0};  ///< time for which they were ready and waited for a core
  };

  /// Takes a look; looks may come at any distance. What came before the first one counts. Returns is_shared().
  bool look(Clock::time_point now, const Usage& usage);
  bool is_shared() const { return shared_; }
  /// How many cores a team of so many threads gets beside the other work: all if there is none, and at least 1.
  int cores_for(int threads) const;

 private:
  static constexpr std::chrono::microseconds kTurn{4000};  ///< for which others have a core
  static constexpr double kForgiven = 60;                  ///< turns per second on cores
  static constexpr double kMost = 3;                       ///< unforgiven turns beside which a process is alone
  static constexpr std::chrono::milliseconds kShortest{500}, kLongest{4000};

  void begin_sharing(Clock::time_point now);
  void begin_trial();

  bool shared_ = false;
  double level_ = 0;  ///< unforgiven turns
  double share_ = 1;  ///< of the time that threads were ready, while cores are shared
  Usage last_;        ///< at the last look
  Usage recent_;      ///< before it; older looks count half
  Usage trial_;       ///< when the last trial began
  bool tried_ = false;
  Clock::time_point since_;  ///< when this patience began
  std::chrono::milliseconds patience_ = kShortest;
};

}  // namespace tessera::kernels
