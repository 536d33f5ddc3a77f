#include "tessera/runtime/pages.h"

#include <sys/mman.h>

#include <cstdlib>

#include "tessera/base/error.h"

namespace tessera::runtime {

void* allocate_pages(size_t bytes, const char* what) {
  constexpr size_t kLine = 64, kHuge = size_t{2} << 20, kWorthIt = 2 * kHuge;
  const size_t alignment = bytes >= kWorthIt ? kHuge : kLine;
  void* memory = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
  if (!memory) fail_running("memory", "cannot allocate {} bytes for {}", bytes, what);
  if (alignment == kHuge) madvise(memory, bytes / kHuge * kHuge, MADV_HUGEPAGE);  // advice: it may go unheard
  return memory;
}

}  // namespace tessera::runtime
