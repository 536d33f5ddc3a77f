#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "tessera/comm/communicator.h"
#include "tessera/launch.h"

/// The engines "mpi" and "gloo": ranks that mpirun, srun or torchrun has started, connected by a plugin.
namespace tessera::launch {

/// This process' part in what a launcher started, to be connected by `engine`: "mpi", "gloo", or "auto" for what suits
/// the launcher; none if that is no engine between processes. See comm::find_launch for errors.
std::optional<Launch> find_launched(std::string_view engine);
std::shared_ptr<comm::World> connect_launched(const Launch& launch, const comm::WorldOptions& options);

}  // namespace tessera::launch
