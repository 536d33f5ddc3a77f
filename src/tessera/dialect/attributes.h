#pragma once

#include <span>
#include <string_view>

#include "tessera/dialect/schema.h"

namespace tessera::dialect {

/// Throws a user error (stage "dialect") that names the node if an attribute is not in the schema of operator `op`, has
/// another type, or is required but absent. Unless `order` is empty, every such node may have an attribute of that name
/// with the value "position".
void check_attributes(const Node& node, std::string_view op, std::span<const AttributeSchema> schema,
                      std::string_view order = "");

}  // namespace tessera::dialect
