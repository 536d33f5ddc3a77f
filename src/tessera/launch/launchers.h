#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "tessera/comm/communicator.h"
#include "tessera/launch.h"

/// The engines "mpi" and "gloo": a plugin connects ranks that mpirun, srun or torchrun has started.
namespace tessera::launch {

/// This process' part in a launch, to be connected by `engine`: "mpi", "gloo", or "auto" for the launcher's own;
/// nullopt if that engine does not connect processes. See comm::find_launch for errors.
std::optional<Launch> find_launched(std::string_view engine);
std::shared_ptr<comm::World> connect_launched(const Launch& launch, const comm::WorldOptions& options);

}  // namespace tessera::launch
