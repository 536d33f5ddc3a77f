#pragma once

#include "tessera/model.h"
#include "tessera/plan.h"
#include "tessera/training.h"

namespace tessera::plan {

/// Whether a plan and a training step (may be null) ask the same of all alike blocks of a model, so that programs with
/// few of the blocks can stand for the whole: each pattern of names that they give matches a tensor in all blocks or in
/// none.
bool treats_blocks_alike(const ModelBlocks& blocks, const Plan& plan, const Training* training);

}  // namespace tessera::plan
