#pragma once

#include <optional>
#include <set>
#include <vector>

#include "tessera/spmd/decide/costs.h"
#include "tessera/spmd/decide/decide.h"
#include "tessera/spmd/reshard/reshard.h"

namespace tessera::spmd {

/// A value that changes its layout.
struct Moved {
  DType dtype = DType::undefined;
  bool wide_sums = false;  ///< its partial sums are float32 if it is a 16-bit float

  /// Of a step of the change.
  double cost(const ReshardStep& step, const Costs& costs) const;
};

/// Whether ranks have terms of sums, not of extremes alone.
bool is_partial_sum(const Sharding& sharding);

/// Whether a node's partial sums are float32 although its result is a 16-bit float: because it sums in float32
/// (NodeLayout::wide_sums), or because it keeps the float32 sums of an operand in `wide`.
bool makes_wide_sums(const NodeLayout& node, const NodeDecision& decision, size_t result, const ValueSet& wide);

/// How a value gets into a layout from one that it already has.
struct Route {
  size_t from = 0;  ///< index into the layouts that it has
  std::vector<ReshardStep> steps;
  double cost = 0;
};

/// The cheapest route from any of several layouts of a value; the first of equally cheap ones. Nullopt if there is
/// none, since no step makes a value partial.
std::optional<Route> cheapest_route(const std::vector<Sharding>& layouts, const Sharding& wanted, const Moved& of,
                                    const Costs& costs);

/// Of what a node's local form communicates: in reductions (ops::Localizer::reduce), in float32 at least, one or more
/// over all axes of each factor of such a kind; and of other ranks' parts (ops::Localizer::widen).
double cost_within(const Layout& layout, const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                   const Costs& costs);

}  // namespace tessera::spmd
