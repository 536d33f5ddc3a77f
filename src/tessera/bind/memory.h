#pragma once

#include <cstddef>
#include <vector>

namespace tessera::bind {

/// A buffer that must exist from step `first` to step `last`, both included.
struct Lifetime {
  size_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct MemoryPlan {
  std::vector<size_t> offsets;  ///< one per lifetime, 64-byte aligned
  size_t bytes = 0;             ///< of the arena
};

/// Places buffers so that those alive together do not overlap: the largest first, each at the lowest offset that is
/// free during its life (Pisarchyk and Lee 2020, "greedy by size").
MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes);

/// The lifetimes that are alive at the peak of memory, in ascending order.
std::vector<size_t> alive_at_peak(const std::vector<Lifetime>& lifetimes);

}  // namespace tessera::bind
