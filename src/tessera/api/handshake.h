#pragma once

#include <string_view>

#include "tessera/comm/communicator.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::api {

/// Compares what the ranks are about to run: the `version` of tessera, the mesh, the program, and its weights (their
/// types, extents and samples of their bytes). Every rank calls it before its first run. Throws a user error that names
/// the ranks that differ from rank 0, and in what.
void shake_hands(comm::Communicator& everyone, const runtime::RankPrograms& programs, std::string_view version);

}  // namespace tessera::api
