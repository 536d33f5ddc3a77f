#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tessera/ir/text_syntax.h"

namespace tessera::text {

/// What follows an attribute's name: [: type] = value. `graph` parses the graph that comes next; `at` is the offset of
/// the name.
AttributeSyntax parse_attribute(Scanner& in, size_t at, std::string name, const std::function<GraphSyntax()>& graph);

/// "ints" for ONNX's AttributeType 7, and back; "undefined" and 0 for unknown ones.
std::string attribute_type_name(int type);
int attribute_type_named(std::string_view name);

}  // namespace tessera::text
