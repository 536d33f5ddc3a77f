#pragma once

#include <cstddef>

namespace tessera::runtime {

/// Memory for std::free, 64-byte aligned, its bytes anything. Large pieces lie in huge pages where the kernel has them,
/// so that kernels that stream through them miss the TLB less. Throws a running error naming `what` if there is none.
void* allocate_pages(size_t bytes, const char* what);

}  // namespace tessera::runtime
