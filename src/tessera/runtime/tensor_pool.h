#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "tessera/runtime/memory_limit.h"

namespace tessera::runtime {

/// Memory for tensors that are handed out and come back when nobody holds them any more: a run after the first touches
/// no fresh pages. Tensors may outlive the pool. What they take, and what lies in the pool, is held of a limit on
/// memory; what lies there goes where others want room. Thread-safe.
class TensorPool {
 public:
  /// Gives so many bytes, 64-byte aligned.
  using Allocate = std::function<std::shared_ptr<std::byte[]>(size_t bytes)>;
  /// `limit` must outlive the pool.
  TensorPool(MemoryLimit& limit, Allocate allocate);
  /// A tensor whose elements are anything. `what` it is and what is in use `beside`: as MemoryLimit::hold has it.
  Tensor take(DType dtype, Dims dims, std::string_view what, size_t beside);
  /// Bytes that lie in the pool.
  size_t idle() const;

 private:
  struct Shelf;
  MemoryLimit& limit_;
  Allocate allocate_;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace tessera::runtime
