#pragma once

#include "tessera/runtime/box.h"
#include "tessera/runtime/profile.h"
#include "tessera/runtime/rank_state.h"

namespace tessera::runtime {

/// A communication node of domain tessera.comm, bound to a rank and to extents. What start() was given must stay as it
/// is, and what it writes untouched, until wait() has returned, which is given the same.
class Communication {
 public:
  virtual ~Communication() = default;
  virtual size_t scratch_bytes() const = 0;
  virtual void start(const kernels::KernelArgs& args) = 0;
  /// Lets it advance where the communicator leaves that to its callers (Communicator::test).
  virtual void advance() = 0;
  virtual void wait(const kernels::KernelArgs& args) = 0;
};

/// The communicator is asked for at the first start, so that a plan can be made without a world. Fills in what `info`
/// says of communication.
std::unique_ptr<Communication> prepare_communication(const Node& node, RankState& rank, const SymbolLookup& symbols,
                                                     StepInfo& info);

}  // namespace tessera::runtime
