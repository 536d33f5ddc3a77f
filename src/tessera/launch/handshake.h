#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::launch {

/// Compares what the ranks are about to run: the `version` of tessera, the mesh, the program, its constants, and the
/// types and extents of its weights. Every rank calls it before its first run. Throws a user error that names the ranks
/// that differ from rank 0, and in what.
///
/// Returns, by rank, which copy of the weights it reads. Where that is equal, ranks of one host have mapped the same
/// files, and so have the same bytes; where not, nothing is said (SameWeights).
std::vector<uint64_t> shake_hands(comm::Communicator& everyone, const runtime::RankPrograms& programs,
                                  std::string_view version);

}  // namespace tessera::launch
