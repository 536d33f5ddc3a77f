#pragma once

#include <string_view>

#include "tessera/ir/graph.h"

namespace tessera {

/// Declares that the value is a handle and no tensor: ONNX's opaque type of that domain and name. Its dtype stays
/// undefined.
void set_opaque_type(Value& value, std::string_view domain, std::string_view name);

/// Whether the value is declared to have that type.
bool has_opaque_type(const Value& value, std::string_view domain, std::string_view name);

}  // namespace tessera
