#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "tessera/ir/tensor.h"

namespace tessera::runtime {

/// Memory for tensors that are handed out and come back when nobody holds them any more: a run after the first touches
/// no fresh pages. Tensors may outlive the pool. Thread-safe.
class TensorPool {
 public:
  /// Gives so many bytes, 64-byte aligned.
  using Allocate = std::function<std::shared_ptr<std::byte[]>(size_t bytes)>;
  explicit TensorPool(Allocate allocate);
  /// A tensor whose elements are anything.
  Tensor take(DType dtype, Dims dims);

 private:
  struct Shelf;
  Allocate allocate_;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace tessera::runtime
