#pragma once

#include <vector>

#include "tessera/ir/text_syntax.h"

// The parts of ONNX text that declare a tensor.
namespace tessera::text {

/// What follows a type's name: nothing (a scalar), "[]" (any shape), or extents. Appends to `unknown` the dimensions
/// that are written '?'; their extents are 0.
TensorType parse_type(Scanner& in, DType dtype, std::vector<size_t>& unknown);

/// The elements of an expression: {a, b*2}, or {= a}, which is a scalar.
std::vector<Expr> parse_content(Scanner& in, bool& scalar);

/// [state|constant|expression] [type] name [= data] [-> next] [from origin]. Without `with_data`: [type] name.
ValueSyntax parse_value(Scanner& in, bool with_data);

}  // namespace tessera::text
