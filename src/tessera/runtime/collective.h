#pragma once

#include "tessera/bind/machine.h"
#include "tessera/runtime/rank_state.h"

namespace tessera::runtime {

/// Requests the communicator only at the first start, so that a plan can be made without a world. Fills in the fields
/// of `info` that describe communication.
std::unique_ptr<bind::Communication> prepare_communication(const Node& node, RankState& rank,
                                                           const SymbolLookup& symbols, bind::StepInfo& info);

}  // namespace tessera::runtime
