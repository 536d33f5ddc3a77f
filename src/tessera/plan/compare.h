#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tessera/time.h"

/// Why one plan takes less time than another.
namespace tessera::plan {

/// Where the time of `other` differs from that of `best`, the largest difference first, without those below a tenth of
/// it: "2.50 ms more exposed communication (mostly AllGather), 0.50 ms less computation".
std::string difference(const Prediction& best, const Prediction& other);

/// The least factor from 1 to `most` for which `holds` is true, within 1 %, if it is true for all larger ones. Nullopt
/// if it is false for `most`. Calls `holds` about ten times.
std::optional<double> least_factor(const std::function<bool(double)>& holds, double most);

}  // namespace tessera::plan
