#pragma once

#include "tessera/kernels/cpu/matrix_product.h"

namespace tessera::kernels {

/// Products of more rows than this are the library's.
constexpr int64_t most_row_product_rows = 4;

/// Whether make_row_product() computes it: few rows, and a packed weight whose layout it can read.
bool is_row_product(const ProductSpec& spec);

/// A product of few rows, as decoding one token at a time has them: what takes time is to bring the weight from
/// memory, once. Null for what is_row_product() refuses, and with `then`: add what follows afterwards.
std::unique_ptr<MatrixProduct> make_row_product(const ProductSpec& spec);

}  // namespace tessera::kernels
