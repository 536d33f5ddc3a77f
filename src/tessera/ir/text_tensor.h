#pragma once

#include <string>
#include <vector>

#include "tessera/ir/tensor.h"
#include "tessera/ir/text_scanner.h"

namespace tessera::text {

/// A literal that reads back as the same float and is recognizable as a float: "1.0", "1e-05", "inf".
std::string print_float(float value);

/// Whether elements of that type have literals: floats and integers of whole bytes and bool do, 8-bit floats do not.
bool has_literals(DType dtype);

/// "{1.0, 2.0}"; elements of 16-bit floats are their bits.
std::string print_elements(const Tensor& tensor);

/// Reads "{…}" for a tensor of that type; "{...}" gives zeros. 16-bit floats may be bits (integers) or values (with a
/// point or exponent). `what` names the tensor.
Tensor parse_elements(Scanner& scanner, DType dtype, const Dims& dims, std::string_view what);

/// Zeros; an error at `at` if the extents are beyond any memory.
Tensor zeros_at(const Scanner& scanner, size_t at, DType dtype, const Dims& dims, std::string_view what);

}  // namespace tessera::text
