#pragma once

#include <string_view>

#include "tessera/kernels/view.h"

namespace tessera::kernels {

/// One batch dimension of a product: its extent, and which operands have it (the other one is repeated).
struct MatmulBatch {
  int64_t extent = 1;
  bool in_a = true;
  bool in_b = true;

  bool operator==(const MatmulBatch&) const = default;
};

/// A batch of matrix products c[m, n] = Σk a[m, k] · b[k, n], with as few batch dimensions as possible: neighbours of
/// one kind merge if all strides allow that, and innermost dimensions that only `a` has become rows.
/// `[8, 5, 4] · [4, 3]` is one product of 40 rows; `[2, 3, 5, 4] · [3, 4, 6]` has batch dimensions 2 (of a) and 3 (of
/// both).
struct MatmulShape {
  std::vector<MatmulBatch> batch;
  int64_t m = 0, n = 0, k = 0;
  /// In elements: along the batch dimensions, then along rows and columns. Where the extent is 1, or an operand is
  /// repeated, a stride that fits a dense tensor.
  Dims a_strides, b_strides, c_strides;

  int64_t batch_count() const;
  int64_t result_count() const { return batch_count() * m * n; }
  // Extents of a tensor that go with its strides: the batch dimensions (1 where it is repeated), then two.
  Dims a_dims() const;
  Dims b_dims() const;
  Dims c_dims() const;

  /// cᵀ = bᵀ · aᵀ in the same memory.
  MatmulShape turned() const;
};

/// numpy's matmul on operands of any rank ≥ 1 and any strides; those of the result, if it is not row-major. A user
/// error naming `label` if the extents do not fit.
MatmulShape matmul_shape(const View& a, const View& b, std::string_view label, const Dims& result_strides = {});
/// Gemm's product of two matrices.
MatmulShape gemm_shape(const View& a, const View& b, bool a_transposed, bool b_transposed, std::string_view label);

/// Whether products read the view at full speed: its matrices (last two dimensions) lie by rows or by columns, and
/// no stride is zero or negative.
bool is_product_operand(const View& view);

}  // namespace tessera::kernels
