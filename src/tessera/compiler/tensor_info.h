#pragma once

#include <string_view>

#include "tessera/ir/graph.h"
#include "tessera/tensors.h"

namespace tessera::compiler {

/// Describes values as the public API does.
TensorInfo info_of(const Value& value);
TensorInfo info_of(std::string_view name, const TensorType& type);

}  // namespace tessera::compiler
