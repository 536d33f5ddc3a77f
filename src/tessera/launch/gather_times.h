#pragma once

#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/runtime/profile.h"

namespace tessera::launch {

/// The times of all ranks' last run, by rank, on every rank, of which each brings its own; all call it together. Where
/// ranks are on several machines, whose clocks differ, theirs are set by a meeting of all: to some microseconds.
std::vector<runtime::RankTimes> gather_times(comm::World& world, int rank, const runtime::RankTimes& own);

}  // namespace tessera::launch
