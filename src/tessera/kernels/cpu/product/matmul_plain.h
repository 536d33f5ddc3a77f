#pragma once

#include <algorithm>
#include <type_traits>

#include "tessera/kernels/cpu/product/matmul_shape.h"

/// Matrix products by plain loops, for types that the library does not take. Each element is summed in the order of k.
namespace tessera::kernels {

/// The type in which T is summed; integers wrap around, as in two's complement.
template <typename T>
struct PlainSum {
  using type = T;
};
template <typename T>
requires std::is_integral_v<T>
struct PlainSum<T> {
  using type = std::make_unsigned_t<T>;
};

/// One product: rows [begin, end) of c[m, n]. `Strides` are those of rows and columns, in elements.
struct MatrixStrides {
  int64_t row, column;
};

template <typename T>
void plain_product_rows(const T* a, MatrixStrides as, const T* b, MatrixStrides bs, T* c, int64_t begin, int64_t end,
                        MatrixStrides cs, int64_t n, int64_t k) {
  using Sum = typename PlainSum<T>::type;
  constexpr int64_t tile = 64;  // columns whose sums stay in registers and first-level cache
  for (int64_t column = 0; column < n; column += tile) {
    const int64_t width = std::min(tile, n - column);
    for (int64_t i = begin; i < end; ++i) {
      Sum sums[tile] = {};
      for (int64_t l = 0; l < k; ++l) {
        const Sum left = static_cast<Sum>(a[i * as.row + l * as.column]);
        const T* right = b + l * bs.row + column * bs.column;
        for (int64_t j = 0; j < width; ++j) sums[j] += left * static_cast<Sum>(right[j * bs.column]);
      }
      for (int64_t j = 0; j < width; ++j) c[i * cs.row + (column + j) * cs.column] = static_cast<T>(sums[j]);
    }
  }
}

template <typename T>
void plain_matmul(const MatmulShape& shape, const T* a, const T* b, T* c, int threads) {
  const Dims &a_strides = shape.a_strides, &b_strides = shape.b_strides, &c_strides = shape.c_strides;
  const size_t rank = shape.batch.size();
  const MatrixStrides as{a_strides[rank], a_strides[rank + 1]}, bs{b_strides[rank], b_strides[rank + 1]},
      cs{c_strides[rank], c_strides[rank + 1]};
  constexpr int64_t rows = 16;
  const int64_t blocks = (shape.m + rows - 1) / rows, count = shape.batch_count() * blocks;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t task = 0; task < count; ++task) {
    const int64_t batch = task / blocks, begin = task % blocks * rows;
    int64_t rest = batch, a_offset = 0, b_offset = 0, c_offset = 0;
    for (size_t i = rank; i-- > 0; rest /= shape.batch[i].extent) {
      const int64_t index = rest % shape.batch[i].extent;
      if (shape.batch[i].in_a) a_offset += index * a_strides[i];
      if (shape.batch[i].in_b) b_offset += index * b_strides[i];
      c_offset += index * c_strides[i];
    }
    plain_product_rows(a + a_offset, as, b + b_offset, bs, c + c_offset, begin, std::min(begin + rows, shape.m), cs,
                       shape.n, shape.k);
  }
}

}  // namespace tessera::kernels
