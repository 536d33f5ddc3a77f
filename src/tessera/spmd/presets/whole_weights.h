#pragma once

#include "tessera/spmd/presets/presets.h"

namespace tessera::spmd {

/// Reports the share of the parameters' bytes that megatron leaves whole on every rank of its axis, the largest matrix
/// or table among them, and why it is whole: as a warning from 1 % of the bytes on, else as a note. Vectors (biases,
/// scales of norms) that stay whole and what other annotations lay out are not reported.
void remark_on_whole_weights(const PresetContext& context, const Decisions& decisions);

}  // namespace tessera::spmd
