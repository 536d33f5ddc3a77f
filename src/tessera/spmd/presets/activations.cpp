#include <fmt/format.h>

#include "tessera/spmd/presets/inputs.h"
#include "tessera/spmd/presets/pairs.h"
#include "tessera/spmd/presets/registry.h"

/// Activations between megatron's row-parallel results and the next column-parallel matmuls, split on its axis: its
/// all-reduces become reduce-scatters and all-gathers, and residuals are held in parts.
namespace tessera::spmd {
namespace {

// Counted from the last dimension; -1 if the value has no such dimension, or only the batch dimension.
int dim_from_end(const Value* value, int from_end) {
  constexpr int kWithoutBatch = 3;
  return value->rank() >= kWithoutBatch ? static_cast<int>(value->rank()) - from_end : -1;
}

void annotate(PresetContext& context, const Value* value, int dim, bool split) {
  if (dim < 0) return;
  Sharding sharding = Sharding::replicated(value->shape());
  for (DimSharding& each : sharding.dims) each.open = true;
  sharding.dims[dim].open = false;
  std::vector<AxisRef>& axes = sharding.dims[dim].parts[0].axes;
  axes = input_axes_along(context, value, dim);
  if (split) axes.push_back(context.axis);
  context.annotate(value, std::move(sharding));
}

void split_rows(PresetContext& context, const MegatronPlan& plan, int from_end, std::string_view called) {
  bool any = false;
  for (const auto* group : {&plan.rows, &plan.lookups})
    for (const SplitWeight& weight : *group) {
      const Value* result = weight.node->node->outputs[0];
      const int dim = dim_from_end(result, from_end);
      any |= dim >= 0;
      annotate(context, result, dim, true);
    }
  if (!any) context.warnings.push_back(fmt::format("{}: no row-parallel matmul has a {} to split", context.by, called));
}

// Norms are computed in parts, too. The results of the next matmuls have the sequence whole again.
void split_sequence(PresetContext& context) {
  constexpr int kFromEnd = 2;
  const MegatronPlan plan = find_megatron(context);
  split_rows(context, plan, kFromEnd, "sequence dimension");
  for (const auto* group : {&plan.columns, &plan.heads})
    for (const SplitWeight& weight : *group) {
      const Value* result = weight.node->node->outputs[0];
      annotate(context, result, dim_from_end(result, kFromEnd), false);
    }
}

// Norms reduce their moments over the ranks.
void split_features(PresetContext& context) {
  constexpr int kFromEnd = 1;
  split_rows(context, find_megatron(context), kFromEnd, "feature dimension beside batch and sequence");
}

}  // namespace

Preset sequence_preset() {
  return {"sequence", {"tp"}, false, "sequence parallelism between megatron's matmuls, on its axis", split_sequence};
}

Preset features_preset() {
  return {"features",
          {"tp"},
          false,
          "features split between megatron's matmuls, on its axis (2d: fsdp, megatron and this)",
          split_features};
}

}  // namespace tessera::spmd
