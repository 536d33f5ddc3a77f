#pragma once

#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/view.h"

namespace tessera::kernels {

/// Copies a view to row-major memory: result[i, j, …] = the view's element (i, j, …) in the operand's memory.
class StridedCopy {
 public:
  explicit StridedCopy(const View& view);

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

/// An error that names the node if result 0 is not of these extents.
void check_extents(const PrepareContext& context, const Dims& expected);

/// The bytes of this many adjacent elements. A user error if elements of less than a byte do not fill them.
int64_t line_bytes(const Node& node, DType dtype, int64_t elements);

/// Writes a view of operand 0 out as result 0; an error if that has other extents. Elements of less than a byte go by
/// adjacent elements, which must fill whole bytes.
std::unique_ptr<Kernel> written_out(const PrepareContext& context, const View& view);

}  // namespace tessera::kernels
