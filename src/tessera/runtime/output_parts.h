#pragma once

#include <span>
#include <string>

#include "tessera/runtime/rank_state.h"
#include "tessera/spmd/partition/held_part.h"

namespace tessera::runtime {

/// Completes a global value in the process of rank 0 if ranks live in several processes. The ranks of that process
/// write their parts to `whole` themselves; ranks of other processes send theirs, and rank 0 copies them into its
/// `whole`. Every rank calls this from its own thread, for the same values in the same order. `here`: the ranks of this
/// process.
void bring_parts(RankState& rank, const RankPrograms& programs, const Symbols& symbols, std::span<const int> here,
                 const std::string& value, void* whole);

}  // namespace tessera::runtime
