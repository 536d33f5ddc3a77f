#pragma once

#include <vector>

#include "tessera/explain.h"

/// The memory of a large program at its peak, from two small ones.
namespace tessera::plan {

/// What a rank holds during the operations of a program with `blocks` alike blocks, and at its peak, in bytes. The peak
/// may be larger than all moments, since memory between buffers can be too small for others.
struct HeldMemory {
  double blocks = 0;
  std::vector<MemoryMoment> moments;
  double peak = 0;
};

/// The peak of a program with `blocks` blocks. What a rank holds during one operation is linear in the number of
/// blocks; the peak is not, because another operation may have it in a larger program. So each operation that both
/// programs have gets a line of its own, and the largest value counts.
///
/// Operations are paired by name, which pairs those of the first blocks and those outside of blocks. Those of the last
/// blocks are paired by their distance from these:
///
///     less:  begin  a0            middle  b0            end
///     more:  begin  a0  a1        middle  b1  b0        end
///
/// Pairs that are in another order in `more` than in `less` are left out.
///
/// a1 and b1 are only in `more`. Backwards from `middle`, a1 is paired with a0; forwards from it, b1 with b0.
double peak_with(double blocks, const HeldMemory& less, const HeldMemory& more);

}  // namespace tessera::plan
