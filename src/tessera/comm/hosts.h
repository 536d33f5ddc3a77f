#pragma once

#include <memory>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

/// The world of `network`, of which this process is rank `rank`, where ranks of one host meet in shared memory: groups
/// that lie within a host, whose sums are then in member order, never touch the network, and all buffers lie where the
/// host's ranks can read them. Every rank calls it. Processes are of one host that run on one kernel and have the same
/// network interfaces and process numbers; of containers that have their own of these each is a host. A host whose
/// processes may not open each other's files goes on by the network alone. `host` is equal on ranks of one host only.
int64_t this_host();
std::shared_ptr<World> share_memory_within_hosts(std::shared_ptr<World> network, int rank,
                                                 const WorldOptions& options = {}, int64_t host = this_host());

}  // namespace tessera::comm
