#include "tessera/spmd/presets/inputs.h"
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
    split_input(context, {input, 0});
  }
}

}  // namespace

Preset data_parallel_preset() {
  Preset preset{
      "dp", {"dp", "ddp"}, true, "data parallelism: splits the batch (dimension 0 of the inputs)", split_batch};
  preset.splits_inputs = true;
  return preset;
}

}  // namespace tessera::spmd
