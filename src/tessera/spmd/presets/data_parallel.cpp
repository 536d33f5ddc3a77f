#include <algorithm>

#include "tessera/spmd/presets/registry.h"

namespace tessera::spmd {
namespace {

// Splits the batch: the first dimension of the first input, and of every input that begins with the same extent.
void split_batch(PresetContext& context) {
  const Value* first = nullptr;
  for (const Value* input : context.graph.inputs)
    if (!first && input->rank() > 0) first = input;
  if (!first) {
    context.warnings.push_back(context.by + ": no input has a dimension to split; all ranks hold replicas");
    return;
  }
  for (const Value* input : context.graph.inputs) {
    if (input->rank() == 0 || !(input->shape()[0] == first->shape()[0])) continue;
    // Several presets that split the batch nest.
    const auto earlier = std::find_if(context.annotations.begin(), context.annotations.end(), [&](const Annotation& a) {
      return a.value == input && a.by.starts_with("preset ") && !a.sharding.uses(context.axis);
    });
    if (earlier != context.annotations.end()) {
      earlier->sharding.dims[0].parts[0].axes.push_back(context.axis);
      continue;
    }
    Sharding sharding = Sharding::replicated(input->shape());
    for (DimSharding& dim : sharding.dims) dim.open = true;
    sharding.dims[0].parts[0].axes = {context.axis};
    context.annotate(input, std::move(sharding));
  }
}

}  // namespace

Preset data_parallel_preset() {
  return {"dp", {"dp", "ddp"}, true, "data parallelism: splits the batch (dimension 0 of the inputs)", split_batch};
}

}  // namespace tessera::spmd
