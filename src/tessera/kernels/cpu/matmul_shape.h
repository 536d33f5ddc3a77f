#pragma once

#include <string_view>

#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// One batch dimension of a product: its extent, and which operands have it (the other one is repeated).
struct MatmulBatch {
  int64_t extent = 1;
  bool in_a = true;
  bool in_b = true;

  bool operator==(const MatmulBatch&) const = default;
};

/// A batch of matrix products c[m, n] = Σk a[m, k] · b[k, n] on dense operands, with as few batch dimensions as
/// possible: neighbours of one kind merge, and innermost dimensions that only `a` has become rows. `[8, 5, 4] · [4, 3]`
/// is one product of 40 rows; `[2, 3, 5, 4] · [3, 4, 6]` has batch dimensions 2 (of a) and 3 (of both).
struct MatmulShape {
  std::vector<MatmulBatch> batch;
  int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false;  ///< a is stored [k, m]
  bool b_transposed = false;  ///< b is stored [n, k]

  int64_t batch_count() const;
  int64_t result_count() const { return batch_count() * m * n; }
  // Extents of an operand as one tensor: the batch dimensions (1 where it is repeated), then two.
  Dims a_dims() const;
  Dims b_dims() const;
  Dims c_dims() const;
  // Strides in elements that go with them.
  Dims a_strides() const;
  Dims b_strides() const;
};

/// numpy's matmul on operands of any rank ≥ 1. A user error naming `label` if the extents do not fit.
MatmulShape matmul_shape(const Dims& a, const Dims& b, std::string_view label);
/// Gemm's product of two matrices.
MatmulShape gemm_shape(const Dims& a, const Dims& b, bool a_transposed, bool b_transposed, std::string_view label);

}  // namespace tessera::kernels
