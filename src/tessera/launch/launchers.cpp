#include "tessera/launch/launchers.h"

#include "tessera/base/error.h"
#include "tessera/comm/launch.h"
#include "tessera/comm/plugin.h"

namespace tessera::launch {

std::optional<Launch> find_launched(std::string_view engine) {
  const comm::Launched found = comm::find_launch(comm::engine_named(engine), comm::process_environment());
  if (!found.distributed()) return std::nullopt;
  Launch launch;
  launch.engine = name_of(found.engine);
  launch.rank = found.rank;
  launch.size = found.size;
  launch.local_rank = found.local_rank;
  launch.local_size = found.local_size;
  if (found.engine == comm::Engine::gloo) launch.rendezvous = fmt::format("{}:{}", found.address, found.port);
  return launch;
}

std::shared_ptr<comm::World> connect_launched(const Launch& launch, const comm::WorldOptions& options) {
  comm::Launched part;
  part.engine = comm::engine_named(launch.engine);
  part.launcher = "the launcher";
  part.rank = launch.rank;
  part.size = launch.size;
  if (part.engine == comm::Engine::gloo) {
    const size_t colon = launch.rendezvous.rfind(':');
    if (colon == std::string::npos)
      fail("launch", "the rendezvous of Gloo's ranks is '{}'; write ADDRESS:PORT", launch.rendezvous);
    part.address = launch.rendezvous.substr(0, colon);
    part.port = comm::parse_port(std::string_view(launch.rendezvous).substr(colon + 1), "the rendezvous' port");
  }
  return comm::connect_plugin(part, options);
}

}  // namespace tessera::launch
