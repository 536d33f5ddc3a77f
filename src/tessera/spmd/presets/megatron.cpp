#include <algorithm>
#include <optional>

#include "tessera/spmd/presets/pairs.h"
#include "tessera/spmd/presets/registry.h"
#include "tessera/spmd/presets/whole_weights.h"

namespace tessera::spmd {
namespace {

// The dimension of a movement's operand that has all of the parts of a dimension of its result, and no others; nothing
// if there is none.
std::optional<int> dim_before(const Layout& layout, const NodeLayout& movement, int dim) {
  std::optional<int> before;
  size_t parts = 0;
  for (const SubFactor& sub : movement.subfactors) {
    const auto in = [&](bool result) {
      return std::find_if(sub.places.begin(), sub.places.end(),
                          [&](const Place& place) { return place.result == result && place.tensor == 0; });
    };
    const auto from = in(false), to = in(true);
    if (to == sub.places.end() || to->dim != dim) continue;
    if (from == sub.places.end() || from->part != to->part || before.value_or(from->dim) != from->dim)
      return std::nullopt;
    before = from->dim;
    ++parts;
  }
  if (before && layout.slots[movement.operand_slots[0]].dims[*before].parts.size() != parts) return std::nullopt;
  return before;
}

// Splits a weight where it is stored, so that all its uses know, also those that do not take it through a movement (a
// transpose) that lies between the weight and the product.
void split(PresetContext& context, const Value* weight, int dim) {
  while (weight->producer) {
    const std::optional<int> before = dim_before(context.layout, context.layout.of(weight->producer), dim);
    if (!before) break;
    weight = weight->producer->inputs[0];
    dim = *before;
  }
  Sharding sharding = Sharding::replicated(weight->shape());
  for (DimSharding& each : sharding.dims) each.open = true;
  sharding.dims[dim].parts[0].axes = {context.axis};
  context.annotate(weight, std::move(sharding));
}

// Only contractions, tables and heads are annotated: propagation carries the axis back through heads and hidden
// dimensions to the column-parallel partners, which so get exactly the parts that their consumers have.
void split_pairs_and_tables(PresetContext& context) {
  MegatronPlan plan = find_megatron(context);
  if (plan.empty()) {
    context.warnings.push_back(context.by +
                               ": found no pair of matmuls and no vocabulary to split; all ranks hold replicas");
    return;
  }
  for (const SplitWeight& row : plan.rows) split(context, row.node->node->inputs[1], row.dim);
  for (const SplitWeight& lookup : plan.lookups) split(context, lookup.node->node->inputs[0], lookup.dim);
  for (const SplitWeight& head : plan.heads) split(context, head.node->node->inputs[1], head.dim);
}

}  // namespace

Preset megatron_preset() {
  return {"megatron",
          {"tp"},
          true,
          "tensor parallelism: column- and row-parallel matmuls, vocabulary embedding and head",
          split_pairs_and_tables,
          remark_on_whole_weights};
}

}  // namespace tessera::spmd
