#pragma once

#include <span>

#include "tessera/cost/collectives.h"

namespace tessera::cost {

/// A collective that was timed: its terms, and the seconds that it took.
struct Timed {
  Terms terms;
  double seconds = 0;
};

/// The alpha and beta, neither negative, for which Σ ((messages·α + bytes·β - seconds) / seconds)² is least: errors
/// count by their share, so that small messages weigh as much as large ones. Measurements without seconds are left out;
/// without any other both are zero.
struct Fit {
  double alpha = 0;  ///< seconds
  double beta = 0;   ///< seconds per byte
  double error = 0;  ///< the root of the mean of those squares
};
Fit fit(std::span<const Timed> measurements);

/// A collective of one group that was timed; `bytes` as in ring().
struct TimedCollective {
  comm::Kind kind = comm::Kind::all_reduce;
  double bytes = 0;
  double seconds = 0;
};

/// The same for collectives among `members` on links of one kind, each in the form that these alpha and beta make the
/// better one.
Fit fit(int64_t members, std::span<const TimedCollective> measurements);

}  // namespace tessera::cost
