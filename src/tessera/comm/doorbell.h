#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tessera::comm {

/// Where the threads of one rank sleep, and where others wake them. A sleeper reads the number of rings, looks whether
/// what it waits for has come, and if not sleeps until that number is no longer current: no ring is lost in between.
class Doorbell {
 public:
  /// Rings heard so far; read before looking for what is awaited.
  uint32_t rings() const { return rings_.load(std::memory_order_seq_cst); }

  /// Wakes all sleepers. What the caller wrote before is visible to them.
  void ring();

  /// Returns once rings() differs from `heard`, or after `longest`, or now and then without a reason. Spins a few
  /// microseconds first if `spin`.
  void sleep(uint32_t heard, std::chrono::nanoseconds longest, bool spin);

 private:
  std::atomic<uint32_t> rings_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace tessera::comm
