#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/passes/collective_products.h"
#include "tessera/passes/ring_prices.h"

/// Which collectives go around rings beside their products, by the predicted time of a step.
namespace tessera::compiler {

/// What became of collectives that are alike: of one kind and group, of equal shapes, beside equal products.
struct RingOutcome {
  std::string collective;  ///< "AllGather over tp of 'x' and 7 others"
  int64_t count = 1;
  double bytes = 0;  ///< of the whole tensor, each
  bool taken = false;
  std::string why;  ///< "one way, whole blocks: …", or why not
};

/// Seconds of a step of a program, with these of its collectives in rings.
using StepSeconds = std::function<double(const spmd::Program&, const std::vector<passes::RingChoice>&)>;

/// A choice by time. First the candidates that are alike are priced together (passes/ring_prices.h): without a gain for
/// the collective and its products alone, they stay as they are. The whole step is then simulated with all others in
/// rings, each in the form that the prices prefer. If it takes less time without some of them, these stay, too; for
/// the others, the forms that are nearly as cheap are tried. All stay as they are if what is left does not shorten the
/// step by a fiftieth. The steps simulated are one without rings, one with all, and up to three for each kind that is
/// alike.
///
/// A large program's steps would take minutes to simulate. There, a program with fewer of its blocks
/// (passes/shortened.h) stands for it, and what is chosen for the candidates of a kind holds for all that are alike;
/// with `may_shorten`, else it has no rings.
///
/// `prices`: null if no machine is named. `outcomes` receives an entry for all that are alike.
std::vector<passes::RingChoice> choose_rings(const spmd::Program& program, const cost::Prices* prices,
                                             const StepSeconds& seconds, bool may_shorten,
                                             std::vector<RingOutcome>& outcomes);

/// All candidates, one way in whole blocks, all-reduces in both halves.
std::vector<passes::RingChoice> all_rings(const spmd::Program& program, std::vector<RingOutcome>& outcomes);

}  // namespace tessera::compiler
