#include "tessera/kernels/contention.h"

#include <algorithm>
#include <cmath>

namespace tessera::kernels {
namespace {

// The share of the time in which threads were ready that they had cores.
double share_of(const Contention::Usage& usage) {
  const auto cores = static_cast<double>(usage.cores.count()), waited = static_cast<double>(usage.waited.count());
  return waited > 0 ? cores / (cores + waited) : 1;
}

Contention::Usage between(const Contention::Usage& before, const Contention::Usage& after) {
  return {after.cores - before.cores, std::max(after.waited - before.waited, std::chrono::microseconds(0))};
}

}  // namespace

bool Contention::look(Clock::time_point now, const Usage& usage) {
  const Usage fresh = between(last_, usage);
  const double turns = static_cast<double>(fresh.waited.count()) / static_cast<double>(kTurn.count());
  const double forgiven = static_cast<double>(fresh.cores.count()) * 1e-6 * kForgiven;
  level_ = std::clamp(level_ + turns - forgiven, 0.0, 2 * kMost);  // what is long past does not count
  recent_ = {recent_.cores / 2 + fresh.cores, recent_.waited / 2 + fresh.waited};
  last_ = usage;
  if (shared_ && now - since_ >= patience_)
    begin_trial();
  else if (!shared_ && level_ > kMost)
    begin_sharing(now);
  return shared_;
}

int Contention::cores_for(int threads) const {
  if (!shared_) return threads;
  constexpr double kRounding = 0.4;  // two threads that get 1.5 cores share one
  return std::clamp(static_cast<int>(std::floor(threads * share_ + kRounding)), 1, std::max(threads, 1));
}

void Contention::begin_sharing(Clock::time_point now) {
  constexpr double kNearlyAll = 0.9;
  shared_ = true;
  share_ = share_of(recent_);
  const bool soon = tried_ && share_of(between(trial_, last_)) < kNearlyAll;
  patience_ = soon ? std::min(patience_ * 2, kLongest) : kShortest;
  since_ = now;
}

void Contention::begin_trial() {
  shared_ = false;
  level_ = kMost;
  recent_ = {};
  trial_ = last_;
  tried_ = true;
}

}  // namespace tessera::kernels
