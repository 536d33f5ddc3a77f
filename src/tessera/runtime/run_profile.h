#pragma once

#include <vector>

#include "tessera/profile.h"
#include "tessera/runtime/profile.h"

namespace tessera::runtime {

/// Where the time of a run went, from the times of all its ranks. The n-th communication of a group on each of its
/// members is one meeting: until the last of them arrives, the others wait; from then on the communication takes time.
Profile profile_of(const std::vector<RankTimes>& times);

}  // namespace tessera::runtime
