#include "tessera/api/engines.h"

namespace tessera::api {

const std::vector<Engine>& engines() {
  static const std::vector<Engine> all = {};
  return all;
}

}  // namespace tessera::api
