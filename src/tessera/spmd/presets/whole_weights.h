#pragma once

#include "tessera/spmd/presets/presets.h"

namespace tessera::spmd {

/// Says which share of the parameters' bytes megatron leaves whole on every rank of its axis, which of them is the
/// largest matrix or table, and why it is whole: a warning from a hundredth of the bytes on, below that a note. Says
/// nothing where only vectors (biases, scales of norms) stay whole, and nothing of what others have annotated.
void remark_on_whole_weights(const PresetContext& context, const Decisions& decisions);

}  // namespace tessera::spmd
