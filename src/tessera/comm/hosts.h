#pragma once

#include <memory>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

/// The world of `network`, of which this process is rank `rank`, with shared memory between the ranks of one host.
/// Groups within a host never touch the network, and their sums are in member order; all buffers are where the host's
/// ranks can read them. Every rank calls this. Processes are on one host if they run on one kernel and have the same
/// network interfaces and process numbers; a container that has its own counts as a host. A host whose processes may
/// not open each other's files uses the network alone. `host` must be equal only on ranks of one host.
int64_t this_host();
std::shared_ptr<World> share_memory_within_hosts(std::shared_ptr<World> network, int rank,
                                                 const WorldOptions& options = {}, int64_t host = this_host());

}  // namespace tessera::comm
