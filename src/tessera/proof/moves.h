#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/mesh/sharding.h"
#include "tessera/proof/statement.h"

/// What communications do to layouts.
namespace tessera::proof {

using Partials = std::vector<PartialAxis>;

/// Removes an axis from the partial ones; several of them may be its digits together. False if it is not there under
/// that reduction; then some of its digits may be removed already.
bool take(Partials& partials, const AxisRef& axis, Reduction reduction);
/// The same axes under the same reductions, in any order.
bool same_partials(Partials a, const Partials& b);

/// The axes of a communication's group.
std::vector<AxisRef> axes_of(const Communication& communication, const Mesh& mesh);

/// Why a communication does not fit layouts.
struct Misfit {
  std::string rule;     ///< "layout", or "partial" if it moves what must be reduced first
  std::string message;  ///< names the node
};

/// Why a communication does not turn one layout of a tensor into the other; nullopt if it does.
std::optional<Misfit> misfit_of(const Communication& communication, const Sharding& before, const Sharding& after,
                                const Mesh& mesh);

}  // namespace tessera::proof
