#pragma once

#include "tessera/sim/simulate.h"

namespace tessera::sim {

/// The bytes of a step that communicates, as cost::ring counts them.
double moved_bytes(const bind::Step& step);

/// The communication of a step, once. Throws a user error (stage "simulate") if the machine's links do not reach its
/// group of the mesh.
Transfer transfer_of(const bind::Step& step, const Setting& setting);

/// A message of that many bytes from a rank to rank 0: as long as measured, which holds for the farthest ranks; for
/// another rank of the machine of rank 0, if there are more machines, the time of the nearest link. Throws a user error
/// (stage "simulate") if nothing was measured and there are no links.
Transfer message_of(int from, double bytes, const Setting& setting);

}  // namespace tessera::sim
