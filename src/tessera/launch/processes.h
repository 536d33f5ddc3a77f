#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/launch.h"

/// The engine "processes": ranks that spawn() has started, which share memory.
namespace tessera::launch {

/// The environment variables, each "NAME=value", that spawn() sets for rank `rank` of `size`; `memory` is the file
/// descriptor of the shared memory.
std::vector<std::string> spawned_variables(int rank, int size, int memory);

std::optional<Launch> find_spawned();
std::shared_ptr<comm::World> connect_spawned(const Launch& launch, const comm::WorldOptions& options);

}  // namespace tessera::launch
