#include <algorithm>

#include "tessera/spmd/presets/registry.h"
#include "tessera/spmd/presets/split_stored.h"

/// Expert parallelism: each rank holds the matrices of some experts of a mixture. A rank computes the tokens that
/// choose its experts, and results are summed over the ranks.
namespace tessera::spmd {
namespace {

// A dimension holds experts if one node looks it up in several weights at once. Annotates the first of these;
// propagation takes the axis to the others, biases included.
void split_experts(PresetContext& context) {
  bool any = false;
  for (const NodeLayout& node : context.layout.nodes)
    for (const SubFactor& sub : node.subfactors) {
      if (node.rule.factors[sub.factor].kind != ops::FactorKind::lookup || !sub.splittable) continue;
      std::vector<Place> weights;
      for (const Place& place : sub.places)
        if (!place.result && weight_of(node.node->inputs[place.tensor])) weights.push_back(place);
      if (weights.size() < 2) continue;
      split_where_stored(context, node.node->inputs[weights.front().tensor], weights.front().dim);
      any = true;
    }
  if (!any) context.warnings.push_back(context.by + ": found no mixture of experts to split; all ranks hold replicas");
}

}  // namespace

Preset expert_preset() {
  return {"expert", {"ep"}, true, "expert parallelism: the experts of a mixture are on different ranks", split_experts};
}

}  // namespace tessera::spmd
