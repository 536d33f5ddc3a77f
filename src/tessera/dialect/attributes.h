#pragma once

#include <span>
#include <string_view>

#include "tessera/dialect/schema.h"

namespace tessera::dialect {

/// Throws a user error (stage "dialect") that names the node for an attribute that an operator `op` of that schema does
/// not have, has of another type, or requires and is left out. `order`, unless it is empty, is one that every such node
/// may have, with the value "position".
void check_attributes(const Node& node, std::string_view op, std::span<const AttributeSchema> schema,
                      std::string_view order = "");

}  // namespace tessera::dialect
