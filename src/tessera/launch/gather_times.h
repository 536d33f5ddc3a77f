#pragma once

#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/runtime/profile.h"

namespace tessera::launch {

/// Gathers the times of all ranks' last run, by rank, on every rank. All ranks call this together, each with its own
/// times. If ranks are on several machines, whose clocks differ, a barrier aligns the clocks to some microseconds.
std::vector<runtime::RankTimes> gather_times(comm::World& world, int rank, const runtime::RankTimes& own);

}  // namespace tessera::launch
