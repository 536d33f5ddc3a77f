#include "tessera/comm/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::comm {
namespace {

constexpr int kSpins = 2000;  // tens of microseconds: more than waking from a sleep takes

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is the atomic's own word");

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

// Sequentially consistent on both sides: either the ringer sees the sleeper, or the sleeper's futex sees the ring.
void Doorbell::ring() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  syscall(SYS_futex, &rings_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::sleep(uint32_t heard, std::chrono::nanoseconds longest, bool spin) {
  for (int i = 0; spin && i < kSpins; ++i) {
    if (rings() != heard) return;
    pause();
  }
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(longest.count() / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(longest.count() % 1'000'000'000);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (rings() == heard) syscall(SYS_futex, &rings_, FUTEX_WAIT_PRIVATE, heard, &limit, nullptr, 0);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace tessera::comm
