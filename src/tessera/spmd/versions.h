#pragma once

#include <optional>
#include <vector>

#include "tessera/spmd/layout.h"
#include "tessera/spmd/reshard.h"

namespace tessera::spmd {

/// How a value gets into a layout from one in which it is already.
struct Route {
  size_t from = 0;  ///< among the layouts in which it is
  std::vector<ReshardStep> steps;
  double bytes = 0;  ///< that one rank receives, symbols as hinted
};

/// The cheapest route from any of several layouts of a value; the first of equally cheap ones. Nullopt if there is
/// none: a sum is partial only if it was made so.
std::optional<Route> cheapest_route(const std::vector<Sharding>& layouts, const Sharding& wanted, DType dtype,
                                    const Mesh& mesh, const Hints& hints);

/// Bytes that one rank receives within a node's local form (ops::Localizer::reduce), in float32 at least: one reduction
/// or more over all axes of each factor of such a kind.
double bytes_within(const Layout& layout, const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                    const Mesh& mesh, const Hints& hints);

}  // namespace tessera::spmd
