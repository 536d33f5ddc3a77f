#pragma once

#include "tessera/bind/machine.h"
#include "tessera/runtime/rank_state.h"

namespace tessera::runtime {

/// The collectives of a bucket as one: operand and result i are those of node i. All members' parts of an operand
/// travel beside those of the others, in scratch memory:
///
///   all_reduce       [a's elements | b's], reduced where they are
///   all_gather       gives [a's block | b's], gets [member 0: a's block | b's][member 1: a's block | b's]…
///   reduce_scatter   the other way round
///
/// Each element is reduced in the order in which it would be alone. If the communicator cannot promise that for all,
/// they start as several operations, for which it can.
///
/// A device's communicator takes blocks that are contiguous. So on a device with memory of its own, a single collective
/// whose blocks are strided (an all_gather, or a gather to one rank, along another dimension than the first) travels in
/// the same way.
std::unique_ptr<bind::Communication> prepare_collectives(const std::vector<const Node*>& nodes, RankState& rank,
                                                         const SymbolLookup& symbols, bind::StepInfo& info);

}  // namespace tessera::runtime
