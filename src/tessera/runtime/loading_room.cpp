#include "tessera/runtime/loading_room.h"

#include <algorithm>

namespace tessera::runtime {

LoadingRoom::Scope LoadingRoom::within(device::MemoryLimit& limit) {
  set_budget(std::numeric_limits<size_t>::max());
  change([&] { limit_ = &limit; });
  // Memory is also released by others than ranks that load.
  auto listening = limit.on_release([this] { change([] {}); });
  return {&limit, [this, listening](const void*) mutable {
            listening.reset();
            change([&] { limit_ = nullptr; });
          }};
}

void LoadingRoom::set_budget(size_t bytes) {
  change([&] { budget_ = bytes; });
}

LoadingRoom::Scope LoadingRoom::counted(int& count) {
  change([&] { ++count; });
  return {&count, [this](int* of) { change([&] { --*of; }); }};
}

LoadingRoom::Scope LoadingRoom::load() {
  return counted(loading_);
}

LoadingRoom::Scope LoadingRoom::pause() {
  return counted(paused_);
}

void LoadingRoom::change(const std::function<void()>& change) {
  {
    const std::lock_guard lock(mutex_);
    change();
  }
  changed_.notify_all();
}

void LoadingRoom::wait(const std::function<bool()>& can_go, const std::function<void()>& go) {
  wait(can_go, false, go);
}

void LoadingRoom::wait(const std::function<bool()>& can_go, bool or_nobody_can, const std::function<void()>& go) {
  std::unique_lock lock(mutex_);
  if (!can_go()) {
    const auto own = waiting_.insert(waiting_.end(), &can_go);
    changed_.notify_all();  // with this rank waiting, perhaps nobody can go on
    changed_.wait(lock, [&] { return can_go() || (or_nobody_can && nobody_can_go()); });
    waiting_.erase(own);
  }
  go();
}

bool LoadingRoom::nobody_can_go() const {
  return static_cast<int>(waiting_.size()) + paused_ >= loading_ &&
         std::none_of(waiting_.begin(), waiting_.end(), [](const auto* can_go) { return (*can_go)(); });
}

LoadingRoom::Reservation::Reservation(LoadingRoom& room, size_t bytes) : room_(room), left_(bytes) {
  const auto is_within = [&] { return !room.limit_ || room.limit_->held() + room.reserved_ + bytes <= room.budget_; };
  room.wait(is_within, true, [&] { room.reserved_ += bytes; });
}

LoadingRoom::Reservation::~Reservation() {
  use(left_);
}

void LoadingRoom::Reservation::use(size_t bytes) {
  const size_t used = std::min(bytes, left_);
  left_ -= used;
  room_.change([&] { room_.reserved_ -= used; });
}

}  // namespace tessera::runtime
