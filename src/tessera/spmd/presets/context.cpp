#include "tessera/spmd/presets/inputs.h"
#include "tessera/spmd/presets/registry.h"

/// Context parallelism: each rank has a part of every sequence, from the embedding to the logits. Attention's keys are
/// gathered, or go around a ring.
namespace tessera::spmd {
namespace {

void split_contexts(PresetContext& context) {
  const std::vector<InputDim> contexts = contexts_of(context.graph, context.layout);
  if (contexts.empty())
    context.warnings.push_back(context.by +
                               ": no dimension of an input runs along an attention's queries; all ranks hold replicas");
  for (const InputDim& where : contexts) split_input(context, where);
}

}  // namespace

Preset context_preset() {
  Preset preset{"context",
                {"cp"},
                true,
                "context parallelism: splits sequences, also those of attention's queries",
                split_contexts};
  preset.splits_inputs = true;
  return preset;
}

}  // namespace tessera::spmd
