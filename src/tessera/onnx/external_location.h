#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/ir/graph.h"

namespace tessera {

/// Where a tensor's elements are, outside of the model.
struct ExternalLocation {
  std::string file;     ///< relative to the model's folder
  uint64_t offset = 0;  ///< bytes
};

/// Where an imported model says that the data of this initializer are; nullopt if they are in the model itself.
std::optional<ExternalLocation> external_location(const Value& value);

}  // namespace tessera
