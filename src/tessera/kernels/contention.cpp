#include "tessera/kernels/contention.h"

#include <algorithm>

namespace tessera::kernels {

bool Contention::look(Clock::time_point now, int64_t losses) {
  note(now, losses);
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

void Contention::note(Clock::time_point now, int64_t losses) {
  if (begun_) {
    const double seconds = std::chrono::duration<double>(now - looked_).count();
    const double unforgiven = level_ + static_cast<double>(losses - losses_) - seconds * forgiven_;
    level_ = std::clamp(unforgiven, 0.0, 2 * kMost);  // what is long past does not count
  }
  begun_ = true;
  looked_ = now;
  losses_ = losses;
}

}  // namespace tessera::kernels
