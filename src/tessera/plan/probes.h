#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "tessera/plan/choice.h"

namespace tessera::plan {

/// Candidates that tell most about the others, to be evaluated first: for each way to split tensors within layers, and
/// for split sequences, the one whose ranks of a group are as near to `near` as there are, that stores its parameters
/// split, has the fewest micro-batches, and recomputes most, so that it is likely to fit. `near`: devices within the
/// fastest level of links.
std::set<size_t> probes(const std::vector<Choice>& choices, int64_t near);

}  // namespace tessera::plan
