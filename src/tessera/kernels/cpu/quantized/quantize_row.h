#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ir/dtype.h"

/// Rows of float32 and of codes with one scale, uint8 or int8: the same numbers as by the general way.
namespace tessera::kernels {

/// Widens a range that holds 0 by x[0 … n - 1]; NaN makes it NaN, and a range that is NaN stays so.
void widen_range(const float* x, int64_t n, float& least, float& most);

/// Code `i` of a list.
int byte_at(DType codes, const void* data, int64_t i);

/// out[i] = round(x[i] / scale) + zero, cut to the codes' range; NaN becomes 0.
void quantize_row(DType codes, const float* x, float scale, int zero, std::byte* out, int64_t n);

/// out[i] = (x[i] - zero) · scale
void dequantize_row(DType codes, const std::byte* x, float scale, int zero, float* out, int64_t n);

}  // namespace tessera::kernels
