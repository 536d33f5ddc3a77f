#pragma once

#include <functional>
#include <memory>

#include "tessera/kernels/library.h"

namespace tessera::bind {

/// A kernel that computes what the library's `entry` computes in `context`, some rows of the result at a time, and
/// calls `between` after each piece but the last. Null unless this is a MatMul or Gemm by one matrix (possibly with
/// element-wise nodes after it) whose rows take long. A piece takes a few milliseconds: its number of rows depends only
/// on the extents and the threads, so that every run gives the same bits.
std::unique_ptr<kernels::Kernel> in_row_pieces(const kernels::Library& library, const kernels::KernelEntry& entry,
                                               const kernels::PrepareContext& context,
                                               const std::function<void()>& between);

}  // namespace tessera::bind
