#pragma once

#include "tessera/kernels/cpu/dispatch.h"

namespace tessera::kernels {

/// The strides, in elements, of a dense row-major tensor: {12, 4, 1} for [2, 3, 4].
Dims dense_strides(const Dims& dims);

/// Fills a dense result from a strided view of an operand: result[i, j, …] = operand[offset + i·strides[0] +
/// j·strides[1] + …]. Strides count elements and may be zero (repetition) or negative (reversal).
///
/// Example: the transpose of a [2, 3] matrix has dims {3, 2} and strides {1, 3}; its first row reversed, dims {3},
/// strides {-1}, offset 2.
class StridedCopy {
 public:
  StridedCopy(Dims dims, Dims strides, int64_t offset = 0);

  /// T is any type of the elements' size.
  template <typename T>
  void run(const T* operand, T* result, int threads) const;

 private:
  int64_t offset_ = 0;
  int64_t count_ = 0;
  Dims dims_;  ///< merged; [outer…, columns], or [outer…, tall, columns] where tall is the operand's row dimension
  Dims strides_;  ///< of dims_
  bool transposes_ =
      false;  ///< the result's columns are far apart in the operand, dimension `tall` is contiguous there
  Dims result_strides_;
};

/// A kernel that runs a StridedCopy from operand 0 to result 0.
std::unique_ptr<Kernel> strided_kernel(const PrepareContext& context, StridedCopy copy);

}  // namespace tessera::kernels
