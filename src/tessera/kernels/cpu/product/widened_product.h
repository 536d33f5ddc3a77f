#pragma once

#include "tessera/kernels/cpu/product/matrix_product.h"

namespace tessera::kernels {

/// The product of 16-bit operands by float32 instructions: widens the operands into scratch memory, a panel at a time,
/// and rounds the sums. Null if it is not faster here than the library's own product, or `spec` has no such form.
std::unique_ptr<MatrixProduct> widened_product(const ProductSpec& spec);

}  // namespace tessera::kernels
