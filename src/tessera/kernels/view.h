#pragma once

#include <optional>

#include "tessera/kernels/kernel.h"

/// Views: tensors in the memory of others. Reshapes, transposes, splits and slices make them without a copy.
namespace tessera::kernels {

/// The strides, in elements, of a dense row-major tensor: {12, 4, 1} for [2, 3, 4].
Dims dense_strides(const Dims& dims);

/// Element (i, j, …) lies at offset + i·strides[0] + j·strides[1] + … of some memory, counted in elements. Strides may
/// be zero (repetition) or negative (reversal).
///
/// Example: in a row-major [2, 3] matrix, its transpose is {{3, 2}, {1, 3}, 0}, its first row reversed {{3}, {-1}, 2}.
struct View {
  Dims dims, strides;
  int64_t offset = 0;

  static View dense(const Dims& dims) { return {dims, dense_strides(dims), 0}; }
  /// Row-major from `offset` on.
  bool is_dense() const;
};

/// A tensor that is not in blocks, in its own memory.
View view_of(const TensorDesc& desc);

/// The same elements in the same order under other extents of the same product; nullopt if no strides can express that.
std::optional<View> reshaped(const View& view, const Dims& dims);

/// Dimension d of the result is the view's dimension permutation[d].
View permuted(const View& view, const std::vector<int64_t>& permutation);

/// The views that Transpose, Expand and Slice give of their operand 0. User errors name the node.
View transposed(const Node& node, const View& operand);
View expanded(const Node& node, const View& operand, const Dims& dims);
struct Slices {
  std::vector<int64_t> starts, ends;
  std::optional<std::vector<int64_t>> axes, steps;
};
View sliced(const Node& node, const View& operand, const Slices& slices);

}  // namespace tessera::kernels
