#include "tessera/spmd/presets/registry.h"

/// ZeRO and FSDP: data parallelism whose states are stored split. The gathers before uses, the reduce-scatters of
/// gradients and the updates of shards follow from where states lie.
namespace tessera::spmd {

Preset zero_preset() {
  Preset preset = data_parallel_preset();
  preset.name = "zero1";
  preset.axis_names = {"dp", "ddp", "zero"};
  preset.implied = false;
  preset.description = "dp, with what the optimizer keeps stored split (ZeRO-1 and 2: gradients are scattered, too)";
  preset.stores = Stores::optimizer;
  return preset;
}

Preset fsdp_preset() {
  Preset preset = data_parallel_preset();
  preset.name = "fsdp";
  preset.axis_names = {"fsdp", "dp", "ddp"};
  preset.implied = true;
  preset.description = "dp, with parameters and what the optimizer keeps stored split (ZeRO-3), gathered for each use";
  preset.stores = Stores::everything;
  return preset;
}

}  // namespace tessera::spmd
