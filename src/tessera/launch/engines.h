#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/launch.h"

/// The engines that connect ranks in processes.
namespace tessera::launch {

/// A way to connect ranks.
struct Connector {
  std::string_view name, description;
  /// The reason why this machine cannot use it; empty if it can.
  std::string (*missing)();
  /// Connects to the other processes. Throws a running error if one does not join in time. Null if ranks are threads.
  std::shared_ptr<comm::World> (*connect)(const Launch& launch, const comm::WorldOptions& options);
};

/// All engines.
const std::vector<Connector>& engines();

}  // namespace tessera::launch

namespace tessera {
inline namespace v1 {

struct Connection::Impl {
  Launch launch;
  std::shared_ptr<comm::World> world;
  std::unique_ptr<comm::Communicator> everyone;  ///< for communication outside of programs
};

}  // namespace v1
}  // namespace tessera
