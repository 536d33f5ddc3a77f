#include "tessera/comm/plugin.h"

#include "tessera/comm/gloo/gloo_world.h"

extern "C" {

const char* tessera_plugin_abi() {
  return tessera::comm::plugin_abi();
}

tessera::comm::World* tessera_plugin_connect(const tessera::comm::Launched& launch,
                                             const tessera::comm::WorldOptions& options) {
  return tessera::comm::make_gloo_world(launch, options).release();
}
}
