#pragma once

#include <string_view>

#include "tessera/kernels/kernel.h"

/// Checks of operands before kernels read them: types were inferred from symbols, and only bound extents give the
/// number of elements. User errors that name the node; an absent operand passes.
namespace tessera::kernels {

/// Operand `index`, called `what`, must have these extents.
void require_dims(const PrepareContext& context, size_t index, std::string_view what, const Dims& dims);

/// Operand `index`, called `what`, must hold one element of that type.
void require_scalar(const PrepareContext& context, size_t index, std::string_view what, DType dtype);

}  // namespace tessera::kernels
