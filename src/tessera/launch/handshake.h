#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::launch {

/// Compares what the ranks are about to run: the `version` of tessera, the mesh, the program, its constants, and the
/// types and extents of its weights. Every rank calls this before its first run. Throws a user error that names the
/// ranks that differ from rank 0, and the difference.
///
/// Returns, by rank, the copy of the weights that it reads. Ranks with equal copies are on one host, have mapped the
/// same files, and so have the same bytes; different copies may or may not be equal (SameWeights).
std::vector<uint64_t> shake_hands(comm::Communicator& everyone, const runtime::RankPrograms& programs,
                                  std::string_view version);

}  // namespace tessera::launch
