#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/launch.h"

/// What connects ranks that are processes.
namespace tessera::api {

struct Engine {
  std::string_view name;
  /// This process' part in a launch that the engine knows of; none if the environment says nothing of one.
  std::optional<Launch> (*find)();
  /// Meets the other processes. Throws a running error if they do not come in time.
  std::shared_ptr<comm::World> (*connect)(const Launch& launch, const comm::WorldOptions& options);
};

/// The one visible list, in the order in which they are asked.
const std::vector<Engine>& engines();

}  // namespace tessera::api

namespace tessera {
inline namespace v1 {

struct Connection::Impl {
  Launch launch;
  std::shared_ptr<comm::World> world;
};

}  // namespace v1
}  // namespace tessera
