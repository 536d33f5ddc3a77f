#include "tessera/ir/pages.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tessera/base/error.h"

namespace tessera {
namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__  // as GCC says it
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kMapped = size_t{1} << 30;  // the sanitizer watches malloc's memory
#else
constexpr size_t kMapped = size_t{256} << 10;
#endif
constexpr size_t kHuge = size_t{2} << 20;

size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

size_t mapped_bytes(size_t bytes) {
  constexpr size_t kPage = 4096;
  return round_up(bytes, kPage);
}

/// Null if there is no memory.
void* map(size_t bytes) {
  const bool huge = bytes >= 2 * kHuge;
  const size_t length = mapped_bytes(bytes), spare = huge ? kHuge : 0;
  void* memory = mmap(nullptr, length + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  if (!huge) return memory;
  auto* first = static_cast<std::byte*>(memory);
  auto* aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(first), kHuge));
  const auto before = static_cast<size_t>(aligned - first);
  if (before > 0) munmap(first, before);
  if (before < spare) munmap(aligned + length, spare - before);
  madvise(aligned, length, MADV_HUGEPAGE);  // only advice, which the kernel may ignore
  return aligned;
}

}  // namespace

void FreePages::operator()(std::byte* memory) const {
  if (bytes >= kMapped)
    munmap(memory, mapped_bytes(bytes));
  else
    std::free(memory);
}

inline namespace v1 {

size_t machine_memory() {
  const auto pages = static_cast<size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L));
  size_t bytes = pages * static_cast<size_t>(std::max(sysconf(_SC_PAGESIZE), 1L));
  // The limits of control groups, versions 2 and 1; "max" sets no limit.
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    size_t limit = 0;
    if (std::ifstream(path) >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  rlimit address_space{};
  if (getrlimit(RLIMIT_AS, &address_space) == 0 && address_space.rlim_cur != RLIM_INFINITY)
    bytes = std::min<size_t>(bytes, address_space.rlim_cur);
  return bytes;
}

}  // namespace v1

Pages allocate_pages(size_t bytes, const char* what) {
  constexpr size_t kLine = 64;
  void* memory = bytes >= kMapped ? map(bytes) : std::aligned_alloc(kLine, round_up(bytes + 1, kLine));
  if (!memory) fail_running("memory", "cannot allocate {} bytes for {}", bytes, what);
  return {static_cast<std::byte*>(memory), FreePages{bytes}};
}

Pages allocate_zeros(size_t bytes, const char* what) {
  Pages pages = allocate_pages(bytes, what);
  if (bytes < kMapped) std::memset(pages.get(), 0, bytes);  // what is mapped anew is zeros
  return pages;
}

}  // namespace tessera
