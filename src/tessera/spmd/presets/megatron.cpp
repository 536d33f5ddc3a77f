#include "tessera/spmd/presets/pairs.h"
#include "tessera/spmd/presets/registry.h"
#include "tessera/spmd/presets/split_stored.h"
#include "tessera/spmd/presets/whole_weights.h"

namespace tessera::spmd {
namespace {

// Only contractions, tables and heads are annotated: propagation carries the axis back through heads and hidden
// dimensions to the column-parallel partners, which then get exactly the parts that their consumers have.
void split_pairs_and_tables(PresetContext& context) {
  MegatronPlan plan = find_megatron(context);
  if (plan.empty()) {
    context.warnings.push_back(context.by +
                               ": found no pair of matmuls and no vocabulary to split; all ranks hold replicas");
    return;
  }
  for (const SplitWeight& row : plan.rows) split_where_stored(context, row.node->node->inputs[row.operand], row.dim);
  for (const SplitWeight& lookup : plan.lookups)
    split_where_stored(context, lookup.node->node->inputs[lookup.operand], lookup.dim);
  for (const SplitWeight& head : plan.heads)
    split_where_stored(context, head.node->node->inputs[head.operand], head.dim);
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
