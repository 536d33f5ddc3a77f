#pragma once

#include <span>

#include "tessera/cost/collectives.h"

namespace tessera::cost {

/// A timed collective: its terms and the seconds that it took.
struct Timed {
  Terms terms;
  double seconds = 0;
};

/// The alpha and beta, neither negative, that minimise Σ ((messages·α + bytes·β - seconds) / seconds)². Errors are
/// relative, so that small messages weigh as much as large ones. Measurements of zero seconds are left out; if there
/// are no others, both are zero.
struct Fit {
  double alpha = 0;  ///< seconds
  double beta = 0;   ///< seconds per byte
  double error = 0;  ///< the root of the mean of those squares
};
Fit fit(std::span<const Timed> measurements);

/// A timed collective of one group; `bytes` as in ring().
struct TimedCollective {
  Collective kind = Collective::all_reduce;
  double bytes = 0;
  double seconds = 0;
};

/// The fit for collectives among `members` on links of one kind, each in the form that is faster at this alpha and
/// beta.
Fit fit(int64_t members, std::span<const TimedCollective> measurements);

}  // namespace tessera::cost
