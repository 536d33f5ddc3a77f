#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/mesh/sharding.h"
#include "tessera/proof/statement.h"

/// The effect of communication on layouts.
namespace tessera::proof {

using Partials = std::vector<PartialAxis>;

/// Removes an axis from the partial ones, possibly as several entries that are its digits. Returns false if the axis is
/// not partial under that reduction; some of its digits may then be removed already.
bool take(Partials& partials, const AxisRef& axis, Reduction reduction);
/// Whether both have the same axes with the same reductions, in any order.
bool same_partials(Partials a, const Partials& b);

/// The axes of a communication's group.
std::vector<AxisRef> axes_of(const Communication& communication, const Mesh& mesh);

/// Why a communication does not match the layouts.
struct Misfit {
  std::string rule;     ///< "layout", or "partial" if it moves a value that must be reduced first
  std::string message;  ///< names the node
};

/// Why a communication does not turn one layout of a tensor into the other; nullopt if it does.
std::optional<Misfit> misfit_of(const Communication& communication, const Sharding& before, const Sharding& after,
                                const Mesh& mesh);

}  // namespace tessera::proof
