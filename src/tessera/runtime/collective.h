#pragma once

#include "tessera/runtime/box.h"
#include "tessera/runtime/profile.h"
#include "tessera/runtime/rank_state.h"

namespace tessera::runtime {

/// A communication node of domain tessera.comm, bound to a rank and to extents: a kernel like any other to its
/// executor. The communicator is asked for at the first run, so that a plan can be made without a world. Fills in what
/// `info` says of communication.
std::unique_ptr<kernels::Kernel> prepare_collective(const Node& node, RankState& rank, const SymbolLookup& symbols,
                                                    StepInfo& info);

}  // namespace tessera::runtime
