#include "tessera/spmd/presets/registry.h"

/// ZeRO and FSDP: data parallelism whose states are stored split. The gathers before uses, the reduce-scatters of
/// gradients and the updates of shards follow from the layouts of states.
namespace tessera::spmd {
namespace {

Preset storing(Stores stores, Preset named) {
  named.apply = data_parallel_preset().apply;
  named.splits_inputs = true;
  named.stores = stores;
  return named;
}

}  // namespace

Preset zero_preset() {
  return storing(Stores::optimizer,
                 {"zero1",
                  {"dp", "ddp", "zero"},
                  false,
                  "dp, with optimizer states stored split (ZeRO-1 and 2: gradients are scattered, too)"});
}

Preset fsdp_preset() {
  return storing(Stores::everything,
                 {"fsdp",
                  {"fsdp", "dp", "ddp"},
                  true,
                  "dp, with parameters and optimizer states stored split (ZeRO-3), gathered for each use"});
}

}  // namespace tessera::spmd
