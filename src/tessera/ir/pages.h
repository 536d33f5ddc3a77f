#pragma once

#include <cstddef>
#include <memory>

#include "tessera/memory.h"

namespace tessera {

struct FreePages {
  size_t bytes = 0;  ///< as requested
  void operator()(std::byte* memory) const;
};
using Pages = std::unique_ptr<std::byte[], FreePages>;

/// Uninitialized memory, aligned to 64 bytes. Large pieces are mapped, so that they return to the system when they are
/// freed instead of staying in a thread's heap. They use huge pages if the system has them, so that kernels that stream
/// through them miss the TLB less. Throws a running error naming `what` if there is no memory.
Pages allocate_pages(size_t bytes, const char* what);
/// The same, filled with zeros. A large piece takes memory where it is written to, not before.
Pages allocate_zeros(size_t bytes, const char* what);

}  // namespace tessera
