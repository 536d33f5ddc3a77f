#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/launch.h"

/// The engine "processes": ranks that spawn() has started, which share memory.
namespace tessera::launch {

/// What spawn() tells rank `rank` of `size`, whose file descriptor `memory` is what they share: "NAME=value" each.
std::vector<std::string> spawned_variables(int rank, int size, int memory);

std::optional<Launch> find_spawned();
std::shared_ptr<comm::World> connect_spawned(const Launch& launch, const comm::WorldOptions& options);

}  // namespace tessera::launch
