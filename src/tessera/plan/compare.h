#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tessera/time.h"

/// Why one plan takes less time than another.
namespace tessera::plan {

/// "2.1 ms more communication that nothing hides, most of it AllGather; 0.3 ms less computation": where the time of
/// `other` differs from that of `best`, the largest difference first; differences below a tenth of it are left out.
std::string difference(const Prediction& best, const Prediction& other);

/// The least factor from 1 to `most` for which it holds, within 1 %: as if it held for all larger ones. Nullopt if it
/// does not hold for `most`. Asks about ten times.
std::optional<double> least_factor(const std::function<bool(double)>& holds, double most);

}  // namespace tessera::plan
