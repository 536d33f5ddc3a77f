#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tessera::comm {

/// The threads of one rank sleep here, and others wake them. While nobody sleeps, a ring reads one word.
class Doorbell {
 public:
  /// `between_processes`: ringers and sleepers may be in several processes.
  explicit Doorbell(bool between_processes) : between_processes_(between_processes) {}

  /// Wakes all sleepers. They see everything that the caller wrote before.
  void ring() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    wake();
  }
  /// As ring(), but without the fence: the caller sets one fence between its writes and the wakes of many bells.
  void wake();

  /// Calls `look`, which returns whether the awaited event has happened. If not, sleeps until the next ring or for
  /// `longest`; may also wake spuriously. A ring after the look is not lost. Returns the result of `look`.
  template <typename Look>
  bool look_or_sleep(Look look, std::chrono::nanoseconds longest) {
    Sleeper sleeper(sleepers_);
    uint32_t heard = rings_.load(std::memory_order_acquire);
    bool come = look();
    if (!come) sleep(heard, longest);
    return come;
  }

 private:
  /// Announces a sleeper. The fence pairs with the one in ring(): either the ringer sees the sleeper, or the sleeper's
  /// look sees what the ringer wrote.
  class Sleeper {
   public:
    explicit Sleeper(std::atomic<uint32_t>& sleepers) : sleepers_(sleepers) {
      sleepers_.fetch_add(1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    ~Sleeper() { sleepers_.fetch_sub(1, std::memory_order_relaxed); }

   private:
    std::atomic<uint32_t>& sleepers_;
  };

  void sleep(uint32_t heard, std::chrono::nanoseconds longest);

  const bool between_processes_;
  std::atomic<uint32_t> rings_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace tessera::comm
