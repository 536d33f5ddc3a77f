#include "tessera/spmd/presets/registry.h"

/// The stages of a pipeline are places, which the compiler finds (compiler/pipelining.h); layouts have no part in it.
namespace tessera::spmd {

Preset pipeline_preset() {
  return {
      "pipeline", {"pp"}, true, "pipeline parallelism: stages of the model on different ranks", [](PresetContext&) {}};
}

}  // namespace tessera::spmd
