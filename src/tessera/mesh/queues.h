#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/mesh/sharding.h"

/// The queues of ranks' devices in which groups communicate, for all who count on them: passes, machine programs and
/// devices (docs/devices.md).
namespace tessera {

/// Whether devices of this kind ("cpu", "simulated") have queues that work by themselves. Else a rank's own thread
/// communicates.
bool has_queues(std::string_view device);

/// The name of the queue of a group over these axes: its nearest axis (mesh/nearest_axis.h), since groups that have
/// their nearest links in common would slow each other; of a group of one rank, "one rank". So a program has at most
/// one queue for each axis, for each part of one up to a digit, and for groups of one rank, the same on all ranks.
std::string queue_of(const std::vector<AxisRef>& axes, const Mesh& mesh);

}  // namespace tessera
