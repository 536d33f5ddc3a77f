#pragma once

#include "tessera/runtime/box.h"
#include "tessera/runtime/profile.h"
#include "tessera/runtime/rank_state.h"

namespace tessera::runtime {

/// A communication node of domain tessera.comm, bound to a rank and to extents. From start() until wait(), which gets
/// the same buffers, has returned, operands must not change, and nobody may touch results.
class Communication {
 public:
  virtual ~Communication() = default;
  virtual size_t scratch_bytes() const = 0;
  virtual void start(const kernels::KernelArgs& args) = 0;
  /// Lets it advance if the communicator leaves that to its callers (Communicator::test).
  virtual void advance() = 0;
  virtual void wait(const kernels::KernelArgs& args) = 0;
};

/// Requests the communicator only at the first start, so that a plan can be made without a world. Fills in the fields
/// of `info` that describe communication.
std::unique_ptr<Communication> prepare_communication(const Node& node, RankState& rank, const SymbolLookup& symbols,
                                                     StepInfo& info);

}  // namespace tessera::runtime
