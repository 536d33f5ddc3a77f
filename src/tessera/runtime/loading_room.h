#pragma once

#include <condition_variable>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <mutex>

#include "tessera/device/memory_limit.h"

namespace tessera::runtime {

/// Where the ranks of one process wait for each other while they load weights. They load at the same time, but together
/// hold no more than a budget: to pack a weight takes memory for a while, and a rank that would exceed the budget waits
/// until another rank has released such memory. A rank may exceed it only if all that load wait, and none can go on.
/// Thread-safe.
class LoadingRoom {
 public:
  /// Ends something when the last copy goes.
  using Scope = std::shared_ptr<const void>;

  /// While the result lives, set_budget() limits what this limit counts, and ranks that wait hear of each release.
  [[nodiscard]] Scope within(device::MemoryLimit& limit);
  void set_budget(size_t bytes);

  /// While the result lives, the calling rank loads, and may release memory for which others wait.
  [[nodiscard]] Scope load();
  /// While the result lives, the calling rank may wait for others in a communication.
  [[nodiscard]] Scope pause();

  /// Waits until `can_go()`, then calls `go()`, both under the room's lock. Only change() may change what `can_go`
  /// reads.
  void wait(const std::function<bool()>& can_go, const std::function<void()>& go);
  void change(const std::function<void()>& change);

  /// Bytes that a rank may hold, which the limit does not count yet.
  class Reservation {
   public:
    /// Waits until they are within the budget.
    Reservation(LoadingRoom& room, size_t bytes);
    ~Reservation();
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;
    /// The limit counts these from now on.
    void use(size_t bytes);

   private:
    LoadingRoom& room_;
    size_t left_;
  };

 private:
  void wait(const std::function<bool()>& can_go, bool or_nobody_can, const std::function<void()>& go);
  bool nobody_can_go() const;
  Scope counted(int& count);

  std::mutex mutex_;
  std::condition_variable changed_;
  const device::MemoryLimit* limit_ = nullptr;
  size_t budget_ = std::numeric_limits<size_t>::max();
  size_t reserved_ = 0;
  int loading_ = 0, paused_ = 0;                     // ranks
  std::list<const std::function<bool()>*> waiting_;  // by rank: whether it can go on
};

}  // namespace tessera::runtime
