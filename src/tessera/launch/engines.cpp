#include "tessera/launch/engines.h"

#include "tessera/comm/plugin.h"
#include "tessera/launch/launchers.h"
#include "tessera/launch/processes.h"

namespace tessera::launch {
namespace {

std::string nothing() {
  return "";
}

}  // namespace

const std::vector<Connector>& engines() {
  static const std::vector<Connector> all = {
      {"threads", "ranks are threads of one process", nothing, nullptr},
      {"processes", "ranks are processes that `spawn` starts, which share memory", nothing, connect_spawned},
      {"mpi", "ranks are processes that mpirun or srun starts", [] { return comm::why_no_plugin(comm::Engine::mpi); },
       connect_launched},
      {"gloo", "ranks are processes that torchrun or srun starts, over TCP",
       [] { return comm::why_no_plugin(comm::Engine::gloo); }, connect_launched},
  };
  return all;
}

}  // namespace tessera::launch
