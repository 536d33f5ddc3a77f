#include "tessera/kernels/contention.h"

#include <algorithm>

namespace tessera::kernels {

bool Contention::look(Clock::time_point now, const Had& had) {
  const double seconds = std::chrono::duration<double>(had.cores - had_.cores).count();
  const double unforgiven = level_ + static_cast<double>(had.losses - had_.losses) - seconds * kForgiven;
  level_ = std::clamp(unforgiven, 0.0, 2 * kMost);  // what is long past does not count
  had_ = had;
  if (!shared_ && level_ > kMost) {
    const bool soon = tried_ != Clock::time_point{} && now - tried_ < kSoon;
    patience_ = soon ? std::min(patience_ * 2, kLongest) : kShortest;
    shared_ = true;
    since_ = now;
  } else if (shared_ && now - since_ >= patience_) {
    if (level_ > 0) {
      since_ = now;
    } else {
      shared_ = false;
      tried_ = now;
    }
  }
  return shared_;
}

}  // namespace tessera::kernels
