#include "tessera/kernels/contention.h"

#include <algorithm>
#include <cmath>

namespace tessera::kernels {

bool Contention::look(Clock::time_point now, const Had& had) {
  const auto cores = static_cast<double>((had.cores - had_.cores).count());
  const auto waited = static_cast<double>((had.waited - had_.waited).count());
  const double unforgiven = level_ + waited / static_cast<double>(kTurn.count()) - cores * 1e-6 * kForgiven;
  level_ = std::clamp(unforgiven, 0.0, 2 * kMost);  // what is long past does not count
  cores_ = cores_ / 2 + cores;
  waited_ = waited_ / 2 + waited;
  had_ = had;
  if (is_shared()) {
    if (now - since_ < patience_) return true;
    threads_per_core_ = 0;
    level_ = kMost;
    cores_ = waited_ = 0;
    tried_ = had.cores;
  } else if (level_ > kMost) {
    begin_sharing(now);
  }
  return is_shared();
}

void Contention::begin_sharing(Clock::time_point now) {
  // A share of 1/2 is a core for every two threads; one that is hardly less than a whole core is one.
  constexpr double kHardly = 0.2;
  const double inverse = 1 + waited_ / std::max(cores_, 1.0);
  threads_per_core_ = static_cast<int>(std::clamp(std::ceil(inverse - kHardly), 1.0, 1024.0));
  const bool soon = tried_.count() >= 0 && had_.cores - tried_ < kSoon;
  patience_ = soon ? std::min(patience_ * 2, kLongest) : kShortest;
  since_ = now;
}

}  // namespace tessera::kernels
