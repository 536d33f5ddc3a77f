#pragma once

#include <functional>
#include <memory>

#include "tessera/kernels/kernel.h"

namespace tessera::bind {

/// A kernel that does what `entry` does in `context`, some rows of the result at a time, and calls `between` after each
/// but the last. Null if that is not a MatMul or Gemm by one matrix (what follows it element by element included) whose
/// rows take long. A piece takes a few milliseconds: its rows depend on the extents and the threads
/// alone, so that every run has the same bits.
std::unique_ptr<kernels::Kernel> in_row_pieces(const kernels::KernelEntry& entry,
                                               const kernels::PrepareContext& context,
                                               const std::function<void()>& between);

}  // namespace tessera::bind
