#pragma once

#include <span>
#include <string>

#include "tessera/runtime/held_part.h"
#include "tessera/runtime/rank_state.h"

namespace tessera::runtime {

/// Where ranks live in several processes: completes a global value in the process of rank 0. Every rank calls it, from
/// its own thread, for the same values in the same order, when its process' ranks write their parts to `whole` by
/// themselves: those of other processes than rank 0's send theirs, and rank 0 puts them into its `whole`.
/// `here`: the ranks of this process.
void bring_parts(RankState& rank, const RankPrograms& programs, const Symbols& symbols, std::span<const int> here,
                 const std::string& value, void* whole);

}  // namespace tessera::runtime
