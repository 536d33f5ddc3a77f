#pragma once

#include <cstddef>

#include "tessera/base/checked.h"

namespace tessera::kernels {

/// Divides a kernel's scratch memory: each part starts at a multiple of 64 bytes.
class ScratchPlan {
 public:
  /// Reserves `bytes`; returns the offset.
  size_t add(size_t bytes) {
    const size_t offset = bytes_;
    bytes_ = checked_add(bytes_, checked_add(bytes, size_t{63}, "scratch memory") / 64 * 64, "scratch memory");
    return offset;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

template <typename T = std::byte>
T* scratch_at(void* scratch, size_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(scratch) + offset);
}

}  // namespace tessera::kernels
