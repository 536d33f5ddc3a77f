#include "tessera/spmd/decide/versions.h"

#include <algorithm>

#include "tessera/spmd/partition/halo.h"

namespace tessera::spmd {

double Moved::bytes(const ReshardStep& step, const Mesh& mesh, const Hints& hints) const {
  const bool wide = wide_sums && is_partial_sum(step.before) && is_float(dtype) && bits_of(dtype) == 16;
  return hinted(bytes_received(step, wide ? DType::float32 : dtype, mesh), hints);
}

bool is_partial_sum(const Sharding& sharding) {
  return std::any_of(sharding.partial.begin(), sharding.partial.end(),
                     [](const PartialAxis& axis) { return axis.reduction == Reduction::sum; });
}

bool makes_wide_sums(const NodeLayout& node, const NodeDecision& decision, size_t result,
                     const std::set<const Value*>& wide) {
  if (!decision.results[result].is_partial()) return false;
  if (ops::has_wide_sums(*node.node) && is_partial_sum(decision.results[result])) return true;
  for (size_t t = 0; t < node.operand_slots.size(); ++t)
    if (node.operand_slots[t] >= 0 && decision.operands[t].is_partial() && wide.contains(node.node->inputs[t]))
      return true;
  return false;
}

std::optional<Route> cheapest_route(const std::vector<Sharding>& layouts, const Sharding& wanted, const Moved& of,
                                    const Mesh& mesh, const Hints& hints) {
  std::optional<Route> best;
  for (size_t v = 0; v < layouts.size(); ++v) {
    if (same_layout(layouts[v], wanted)) return Route{v, {}, 0};
    if (!layouts[v].is_partial() && wanted.is_partial()) continue;
    Route route{v, plan_reshard(layouts[v], wanted, of.dtype), 0};
    for (const ReshardStep& step : route.steps) route.bytes += of.bytes(step, mesh, hints);
    if (!best || route.bytes < best->bytes) best = std::move(route);
  }
  return best;
}

namespace {

// Bytes of others' parts that the busiest rank receives.
double bytes_of_halos(const Layout& layout, const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                      const Mesh& mesh, const Hints& hints) {
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
      sum += hinted(halo_elements(halo, sharding, dim, mesh), hints) * bits_of(operand->dtype()) / 8;
    }
  }
  return sum;
}

// The type in which local forms compute, and so exchange, this value.
DType wide_dtype(const Value& result) {
  return is_float(result.dtype()) && bits_of(result.dtype()) < 32 ? DType::float32 : result.dtype();
}

// Bytes to gather the first result along a factor, as often as its local form does.
double bytes_regathered(const Layout& layout, const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                        int factor, const Mesh& mesh, const Hints& hints) {
  const size_t result = first_result(node);
  std::vector<std::vector<AxisRef>> without = axes;
  for (size_t s = 0; s < node.subfactors.size(); ++s)
    if (node.subfactors[s].factor == factor) without[s].clear();
  const DType dtype = wide_dtype(*node.node->outputs[result]);
  double sum = 0;
  for (const ReshardStep& step :
       plan_reshard(laid_out(layout, node, axes, true, result), laid_out(layout, node, without, true, result), dtype))
    sum += hinted(bytes_received(step, dtype, mesh), hints);
  return sum * hinted(node.rule.factors[factor].rounds, hints);
}

}  // namespace

double bytes_within(const Layout& layout, const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                    const Mesh& mesh, const Hints& hints) {
  double sum = bytes_of_halos(layout, node, axes, mesh, hints);
  std::vector<int> factors;
  int reductions = 0, gathers = 0;
  for (int factor = 0; factor < static_cast<int>(node.rule.factors.size()); ++factor) {
    const ops::FactorTraits& traits = ops::traits_of(node.rule.factors[factor].kind);
    if (!traits.communicates() || ranks_of(axes_along(node, axes, {factor})) == 1) continue;
    if (traits.regathers) sum += bytes_regathered(layout, node, axes, factor, mesh, hints);
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
  for (const ReshardStep& step : plan_reshard(before, after, dtype))
    sum += reductions * hinted(bytes_received(step, dtype, mesh), hints);
  const double part = hinted(largest_shard(after, mesh), hints) * bits_of(dtype) / 8;
  return sum + gathers * part * static_cast<double>(ranks_of(over) - 1);
}

}  // namespace tessera::spmd
