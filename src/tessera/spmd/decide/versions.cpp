#include "tessera/spmd/decide/versions.h"

#include <algorithm>

#include "tessera/spmd/partition/halo.h"

namespace tessera::spmd {

double Moved::cost(const ReshardStep& step, const Costs& costs) const {
  const bool wide = wide_sums && is_partial_sum(step.before) && is_float(dtype) && bits_of(dtype) == 16;
  return costs.of(step, wide ? DType::float32 : dtype);
}

bool is_partial_sum(const Sharding& sharding) {
  return std::any_of(sharding.partial.begin(), sharding.partial.end(),
                     [](const PartialAxis& axis) { return axis.reduction == Reduction::sum; });
}

bool makes_wide_sums(const NodeLayout& node, const NodeDecision& decision, size_t result, const ValueSet& wide) {
  if (!decision.results[result].is_partial()) return false;
  if (node.wide_sums && is_partial_sum(decision.results[result])) return true;
  for (size_t t = 0; t < node.operand_slots.size(); ++t)
    if (node.operand_slots[t] >= 0 && decision.operands[t].is_partial() && wide.contains(node.node->inputs[t]))
      return true;
  return false;
}

std::optional<Route> cheapest_route(const std::vector<Sharding>& layouts, const Sharding& wanted, const Moved& of,
                                    const Costs& costs) {
  std::optional<Route> best;
  for (size_t v = 0; v < layouts.size(); ++v) {
    if (same_layout(layouts[v], wanted)) return Route{v, {}, 0};
    if (!layouts[v].is_partial() && wanted.is_partial()) continue;
    Route route{v, costs.plan(layouts[v], wanted, of.dtype), 0};
    for (const ReshardStep& step : route.steps) route.cost += of.cost(step, costs);
    if (!best || route.cost < best->cost) best = std::move(route);
  }
  return best;
}

namespace {

// Of others' parts that the busiest rank receives.
double cost_of_halos(const Layout& layout, const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                     const Costs& costs) {
  double sum = 0;
  for (size_t s = 0; s < node.subfactors.size(); ++s) {
    const ops::Factor& factor = node.rule.factors[node.subfactors[s].factor];
    if (!ops::traits_of(factor.kind).by_window || ranks_of(axes[s]) == 1) continue;
    for (const Place& place : node.subfactors[s].places) {
      const auto window = factor.windows.find(place.tensor);
      if (place.result || window == factor.windows.end()) continue;
      const Value* operand = node.node->inputs[static_cast<size_t>(place.tensor)];
      const auto dim = static_cast<size_t>(place.dim);
      const Halo halo(window->second, operand->shape()[dim], factor.size, axes[s]);
      const Sharding sharding = laid_out(layout, node, axes, false, static_cast<size_t>(place.tensor));
      const double elements = hinted(halo_elements(halo, sharding, dim, costs.mesh()), costs.hints());
      sum += costs.message(elements * bits_of(operand->dtype()) / 8, axes[s]);
    }
  }
  return sum;
}

// The type in which local forms compute, and so exchange, this value.
DType wide_dtype(const Value& result) {
  return is_float(result.dtype()) && bits_of(result.dtype()) < 32 ? DType::float32 : result.dtype();
}

// Of gathering the first result along a factor, as often as its local form does.
double cost_of_regathering(const Layout& layout, const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                           int factor, const Costs& costs) {
  const size_t result = first_result(node);
  std::vector<std::vector<AxisRef>> without = axes;
  for (size_t s = 0; s < node.subfactors.size(); ++s)
    if (node.subfactors[s].factor == factor) without[s].clear();
  const DType dtype = wide_dtype(*node.node->outputs[result]);
  return costs.between(laid_out(layout, node, axes, true, result), laid_out(layout, node, without, true, result),
                       dtype) *
         hinted(node.rule.factors[factor].rounds, costs.hints());
}

}  // namespace

double cost_within(const Layout& layout, const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                   const Costs& costs) {
  double sum = cost_of_halos(layout, node, axes, costs);
  std::vector<int> factors;
  int reductions = 0, gathers = 0;
  for (int factor = 0; factor < static_cast<int>(node.rule.factors.size()); ++factor) {
    const ops::FactorTraits& traits = ops::traits_of(node.rule.factors[factor].kind);
    if (!traits.communicates() || ranks_of(axes_along(node, axes, {factor})) == 1) continue;
    if (traits.regathers) sum += cost_of_regathering(layout, node, axes, factor, costs);
    if (traits.reductions + traits.gathers == 0) continue;
    factors.push_back(factor);
    reductions = std::max(reductions, traits.reductions);
    gathers = std::max(gathers, traits.gathers);
  }
  if (factors.empty()) return sum;
  const size_t result = first_result(node);
  const Sharding after = without_factors(laid_out(layout, node, axes, true, result), node, factors);
  Sharding before = after;
  const std::vector<AxisRef> over = axes_along(node, axes, factors);
  for (const AxisRef& axis : over)
    if (axis.size > 1) before.partial.push_back({axis, Reduction::sum});
  const DType dtype = wide_dtype(*node.node->outputs[result]);
  for (const ReshardStep& step : costs.plan(before, after, dtype)) sum += reductions * costs.of(step, dtype);
  const double part = hinted(largest_shard(after, costs.mesh()), costs.hints()) * bits_of(dtype) / 8;
  return sum + gathers * costs.gather(part, over);
}

}  // namespace tessera::spmd
