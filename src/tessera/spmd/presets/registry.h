#pragma once

#include "tessera/spmd/presets/presets.h"

/// The list of presets; each is defined in a file of this folder.
namespace tessera::spmd {

Preset data_parallel_preset();  // data_parallel.cpp
Preset context_preset();        // context.cpp
Preset megatron_preset();       // megatron.cpp
Preset expert_preset();         // expert.cpp
Preset zero_preset();           // zero.cpp
Preset fsdp_preset();           // zero.cpp
Preset sequence_preset();       // activations.cpp
Preset features_preset();       // activations.cpp
Preset pipeline_preset();       // pipeline.cpp

}  // namespace tessera::spmd
