#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "tessera/device/memory_limit.h"
#include "tessera/ir/pages.h"
#include "tessera/runtime/shared_weights.h"
#include "tessera/runtime/tensor_pool.h"

namespace tessera::runtime {

/// What executors of one process may have together: a limit on their memory, their weights, and memory for outputs.
struct ProcessShare {
  /// `allocate`: memory for outputs, where all ranks reach it. `memory_limit`: in bytes; 0: what the machine has.
  explicit ProcessShare(
      size_t memory_limit,
      TensorPool::Allocate allocate =
          [](size_t bytes) { return std::shared_ptr<std::byte[]>(allocate_pages(bytes, "an output")); })
      : limit(memory_limit), outputs(limit, std::move(allocate)) {}

  device::MemoryLimit limit;
  std::shared_ptr<SharedWeights> weights = std::make_shared<SharedWeights>();
  TensorPool outputs;
  std::mutex planning;             ///< held while an executor makes plans, for which it may load weights
  std::atomic<size_t> arenas = 0;  ///< bytes, of all executors
};

}  // namespace tessera::runtime
