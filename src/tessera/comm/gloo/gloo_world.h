#pragma once

#include <memory>

#include "tessera/comm/communicator.h"
#include "tessera/comm/launch.h"
#include "tessera/comm/remote/direct_plan.h"

namespace tessera::comm {

/// This process as one rank of a launch whose ranks meet at its address and port. Returns when rank 0 has answered;
/// joining a group waits for its other members. The world's destructor waits for all ranks, up to the timeout. Groups
/// of more than `most_direct` members leave all collectives to Gloo.
std::unique_ptr<World> make_gloo_world(const Launched& launch, const WorldOptions& options = {},
                                       int most_direct = DirectPlan::kMostMembers);

}  // namespace tessera::comm
