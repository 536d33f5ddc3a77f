#include "tessera/comm/gloo/alarm.h"

namespace tessera::comm {

Alarm::~Alarm() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

Alarm::Set::Set(Alarm& alarm, std::function<void()> interrupt) : alarm_(alarm) {
  std::lock_guard lock(alarm_.mutex_);
  place_ = alarm_.interrupts_.insert(alarm_.interrupts_.end(), std::move(interrupt));
  alarm_.set_ = true;
  if (alarm_.asleep_) alarm_.changed_.notify_one();
}

Alarm::Set::~Set() {
  std::lock_guard lock(alarm_.mutex_);
  alarm_.interrupts_.erase(place_);
}

void Alarm::ring() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    asleep_ = !set_ && interrupts_.empty();
    if (asleep_) changed_.wait(lock, [this] { return stop_ || set_; });
    asleep_ = set_ = false;
    changed_.wait_for(lock, period_, [this] { return stop_; });
    for (const auto& interrupt : interrupts_) interrupt();
  }
}

}  // namespace tessera::comm
