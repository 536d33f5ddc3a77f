#pragma once

#include <span>
#include <string_view>

#include "tessera/ir/graph.h"

namespace tessera::spmd {

enum class AttributeKind { integer, integers, text, texts };

/// One attribute that an operator may have.
struct AttributeSchema {
  std::string_view name;
  AttributeKind kind;
  bool required;
};

/// Every communicating node of a program without tokens has this attribute, with the value "position": nodes run in the
/// order in which the program lists them.
inline constexpr std::string_view kOrderAttribute = "order";

/// Throws a user error (stage "dialect") that names the node and the attribute if an attribute is not in the schema of
/// operator `op`, has another type, or is required but missing. If `order` is not empty, a node may also have an
/// attribute of that name with the value "position".
void check_attributes(const Node& node, std::string_view op, std::span<const AttributeSchema> schema,
                      std::string_view order = "");

}  // namespace tessera::spmd
