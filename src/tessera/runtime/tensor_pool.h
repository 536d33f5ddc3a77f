#pragma once

#include <memory>

#include "tessera/ir/tensor.h"

namespace tessera::runtime {

/// Memory for tensors that are handed out and come back when nobody holds them any more: a run after the first touches
/// no fresh pages. Tensors may outlive the pool. Thread-safe.
class TensorPool {
 public:
  TensorPool();
  /// A tensor whose elements are anything.
  Tensor take(DType dtype, Dims dims);

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace tessera::runtime
