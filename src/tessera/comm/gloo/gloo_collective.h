#pragma once

#include "tessera/comm/gloo/gloo_fabric.h"
#include "tessera/comm/remote/staged.h"

namespace tessera::comm {

/// Runs a staged collective with Gloo's algorithms; returns when this member has finished. `number` distinguishes it
/// from the group's other collectives. Throws Gloo's exceptions.
///
/// A reduce_scatter exchanges blocks in pieces, and every member reduces its own in member order, because Gloo's own
/// reduce_scatter is old and takes equal blocks only. Gathers and scatters are exchanges in which most blocks are
/// empty.
void run_collective(const std::shared_ptr<GlooContext>& context, Staged& staged, uint64_t number);

}  // namespace tessera::comm
