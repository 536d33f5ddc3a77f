#pragma once

#include "tessera/kernels/cpu/product/matrix_product.h"

namespace tessera::kernels {

/// The library computes products of more rows than this.
constexpr int64_t most_row_product_rows = 4;

/// Whether make_row_product() computes it: few rows, and a packed weight whose layout it can read.
bool is_row_product(const ProductSpec& spec);

/// A product of few rows, as in decoding one token at a time. Its time is that of reading the weight from memory, once.
/// Null if is_row_product() refuses it, and with `then`; the caller then runs the epilogue afterwards.
std::unique_ptr<MatrixProduct> make_row_product(const ProductSpec& spec);

}  // namespace tessera::kernels
