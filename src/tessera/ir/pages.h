#pragma once

#include <cstddef>
#include <memory>

namespace tessera {

struct FreePages {
  size_t bytes = 0;  ///< as they were asked for
  void operator()(std::byte* memory) const;
};
using Pages = std::unique_ptr<std::byte[], FreePages>;

/// Memory of which the first byte is 64-byte aligned and all may be anything. Large pieces are mapped, so that they go
/// back to the system when they are freed rather than stay in a thread's heap, and lie in huge pages where the kernel
/// has them, so that kernels that stream through them miss the TLB less. Throws a running error naming `what` if there
/// is none.
Pages allocate_pages(size_t bytes, const char* what);

/// Bytes of memory that this machine has, or the group of processes that this one is in (a container) may have, if that
/// is less.
size_t machine_memory();

}  // namespace tessera
