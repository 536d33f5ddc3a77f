#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "tessera/device/memory_limit.h"

namespace tessera::runtime {

/// Memory for tensors, which returns to the pool when nobody holds the tensor any more, so that runs after the first
/// touch no fresh pages. Tensors may outlive the pool. A memory limit counts the tensors' memory and the pool's; the
/// pool releases memory that others need. Thread-safe.
class TensorPool {
 public:
  /// Returns `bytes` bytes, aligned to 64 bytes.
  using Allocate = std::function<std::shared_ptr<std::byte[]>(size_t bytes)>;
  /// `limit` must outlive the pool.
  TensorPool(device::MemoryLimit& limit, Allocate allocate);
  /// A tensor with uninitialized elements. `what` and `beside`: as in device::MemoryLimit::hold.
  Tensor take(DType dtype, Dims dims, std::string_view what, size_t beside);
  /// Unused bytes in the pool.
  size_t idle() const;

 private:
  struct Shelf;
  device::MemoryLimit& limit_;
  Allocate allocate_;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace tessera::runtime
