#include "tessera/comm/local/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace tessera::comm {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is the atomic's own word");

void Doorbell::wake() {
  if (sleepers_.load(std::memory_order_relaxed) == 0) return;
  rings_.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &rings_, between_processes_ ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::sleep(uint32_t heard, std::chrono::nanoseconds longest) {
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(longest.count() / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(longest.count() % 1'000'000'000);
  syscall(SYS_futex, &rings_, between_processes_ ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, heard, &limit, nullptr, 0);
}

}  // namespace tessera::comm
