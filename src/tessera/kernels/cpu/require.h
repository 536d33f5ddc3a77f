#pragma once

#include <string_view>

#include "tessera/kernels/kernel.h"

/// What kernels need of operands before they read them: types were inferred from symbols, and only bound extents say
/// how many elements there are. User errors that name the node; an operand that is left out passes.
namespace tessera::kernels {

/// Operand `index`, called `what`, has these extents.
void require_dims(const PrepareContext& context, size_t index, std::string_view what, const Dims& dims);

/// Operand `index`, called `what`, holds one element of that type.
void require_scalar(const PrepareContext& context, size_t index, std::string_view what, DType dtype);

}  // namespace tessera::kernels
