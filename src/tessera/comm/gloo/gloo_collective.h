#pragma once

#include "tessera/comm/gloo/gloo_fabric.h"
#include "tessera/comm/remote/staged.h"

namespace tessera::comm {

/// Runs a staged collective with Gloo's algorithms; returns when this member is through. `number` tells it from the
/// group's other collectives. Throws Gloo's exceptions.
///
/// A reduce_scatter is an exchange of blocks in pieces, of which every member reduces its own in member order: Gloo has
/// only an older one, for equal blocks. Gathers and scatters are exchanges in which most blocks are empty.
void run_collective(const std::shared_ptr<GlooContext>& context, Staged& staged, uint64_t number);

}  // namespace tessera::comm
