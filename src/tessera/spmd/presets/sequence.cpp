#include "tessera/spmd/presets/pairs.h"
#include "tessera/spmd/presets/registry.h"

namespace tessera::spmd {
namespace {

// The dimension next to the features, where there is one besides the batch.
int sequence_dim(const Value* value) {
  return value->rank() >= 3 ? static_cast<int>(value->rank()) - 2 : -1;
}

void annotate(PresetContext& context, const Value* value, bool split) {
  int dim = sequence_dim(value);
  if (dim < 0) return;
  Sharding sharding = Sharding::replicated(value->shape());
  for (DimSharding& each : sharding.dims) each.open = true;
  sharding.dims[dim].open = false;
  if (split) sharding.dims[dim].parts[0].axes = {context.axis};
  context.annotate(value, std::move(sharding));
}

// Between megatron's row-parallel results and the next column-parallel matmuls activations are split along the
// sequence: its all-reduces become reduce-scatters and all-gathers, and norms and residuals are computed in parts.
void split_sequence(PresetContext& context) {
  MegatronPlan plan = find_megatron(context);
  bool any = false;
  for (const auto* group : {&plan.rows, &plan.lookups})
    for (const SplitWeight& weight : *group) {
      const Value* result = weight.node->node->outputs[0];
      any |= sequence_dim(result) >= 0;
      annotate(context, result, true);
    }
  for (const auto* group : {&plan.columns, &plan.heads})
    for (const SplitWeight& weight : *group) annotate(context, weight.node->node->outputs[0], false);
  if (!any) context.warnings.push_back(context.by + ": no row-parallel matmul has a sequence dimension to split");
}

}  // namespace

Preset sequence_preset() {
  return {"sequence", {"tp"}, false, "sequence parallelism between megatron's matmuls, on its axis", split_sequence};
}

}  // namespace tessera::spmd
