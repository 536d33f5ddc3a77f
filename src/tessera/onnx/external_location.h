#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/ir/graph.h"

namespace tessera {

/// The place of a tensor's elements outside of the model.
struct ExternalLocation {
  std::string file;     ///< relative to the model's folder
  uint64_t offset = 0;  ///< bytes
};

/// The place of this initializer's data according to the imported model; nullopt if they are in the model itself.
std::optional<ExternalLocation> external_location(const Value& value);

}  // namespace tessera
