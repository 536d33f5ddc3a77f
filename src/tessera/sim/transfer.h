#pragma once

#include "tessera/sim/simulate.h"

namespace tessera::sim {

/// The bytes of a step that communicates, as cost::ring counts them.
double moved_bytes(const bind::Step& step);

/// The communication of a step, once. Throws a user error (stage "simulate") if the machine's links do not reach its
/// group of the mesh.
Transfer transfer_of(const bind::Step& step, const Setting& setting);

}  // namespace tessera::sim
