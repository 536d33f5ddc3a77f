#pragma once

#include <string>
#include <vector>

#include "tessera/plan/candidates.h"

/// What would make another plan the best.
namespace tessera::plan {

/// The changes of one level of links with which `other` is at least as fast as `best`, simulated with the same change:
/// "if 'infiniband' were 1.4 times as fast".
std::vector<std::string> wins_of(const Candidates& candidates, const Candidates::Kept& best,
                                 const Candidates::Kept& other, const PredictSettings& settings);

/// About how long that takes.
double seconds_of_wins(const Candidates& candidates, const Candidates::Kept& best, const PredictSettings& settings);

}  // namespace tessera::plan
