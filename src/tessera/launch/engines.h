#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/launch.h"

/// What connects ranks that are processes.
namespace tessera::launch {

struct Engine {
  std::string_view name, description;
  /// Why it cannot be used on this machine; empty: it can.
  std::string (*missing)();
  /// Meets the other processes. Throws a running error if they do not come in time. Null where ranks are threads.
  std::shared_ptr<comm::World> (*connect)(const Launch& launch, const comm::WorldOptions& options);
};

/// The one visible list.
const std::vector<Engine>& engines();

}  // namespace tessera::launch

namespace tessera {
inline namespace v1 {

struct Connection::Impl {
  Launch launch;
  std::shared_ptr<comm::World> world;
  std::unique_ptr<comm::Communicator> everyone;  ///< for what is not of a program
};

}  // namespace v1
}  // namespace tessera
