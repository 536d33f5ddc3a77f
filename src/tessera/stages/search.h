#pragma once

#include <vector>

#include "tessera/stages/sums.h"

namespace tessera::stages {

/// Improves a division, if ranks have several stages. With two stages a rank, in a loop or a V, it is exact (pairs.h).
/// Otherwise it goes through all ends of all stages, but what cannot be better than the best so far, and may be cut
/// short.
Dealt search(const Sums& sums, const std::vector<int64_t>& start);

}  // namespace tessera::stages
