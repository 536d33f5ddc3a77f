#pragma once

#include <chrono>
#include <cstdint>

namespace tessera::kernels {

/// Judges whether other work wants the cores on which this process computes. Sign of it is that threads lose a core
/// though they could go on: about 200 times a second beside one busy process. The kernel's own threads take cores now
/// and then, too; so many losses are forgiven.
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

  /// `forgiven`: losses per second that are no sign of other work.
  explicit Contention(double forgiven) : forgiven_(forgiven) {}

  /// Takes a look, `losses` being the involuntary context switches of the process' threads up to now; looks may come at
  /// any distance. Returns is_shared().
  bool look(Clock::time_point now, int64_t losses);
  bool is_shared() const { return shared_; }

 private:
  static constexpr double kMost = 3;  ///< unforgiven losses that a process may have and be alone
  static constexpr std::chrono::milliseconds kShortest{250}, kLongest{4000}, kSoon{250};

  void note(Clock::time_point now, int64_t losses);

  double forgiven_;
  double level_ = 0;  ///< unforgiven losses
  bool shared_ = false, begun_ = false;
  int64_t losses_ = 0;
  Clock::time_point looked_, since_, tried_;  ///< the last look; the begin of this patience; the end of the last one
  std::chrono::milliseconds patience_ = kShortest;
};

}  // namespace tessera::kernels
