#pragma once

#include <cstdint>

namespace tessera::kernels {

/// The most rows of one call of an IntegerStrip.
constexpr int64_t most_integer_rows = 4;

/// Sums of `rows` rows of a (uint8, `a_stride` apart, k rounded up to 4 elements long) by a strip of 64 columns of an
/// IntegerWeight: sums[row][column].
using IntegerStrip = void (*)(int64_t rows, const uint8_t* a, int64_t a_stride, const int8_t* strip, int64_t k,
                              int32_t* sums);

/// The fastest one that this machine has. All give the same sums.
IntegerStrip integer_strip();

/// The one without instructions for dot products, for tests.
IntegerStrip plain_integer_strip();

}  // namespace tessera::kernels
