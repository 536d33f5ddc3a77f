#include "tessera/api/engines.h"

#include "tessera/api/processes.h"

namespace tessera::api {

const std::vector<Engine>& engines() {
  static const std::vector<Engine> all = {
      {"processes", find_spawned, connect_spawned},
  };
  return all;
}

}  // namespace tessera::api
