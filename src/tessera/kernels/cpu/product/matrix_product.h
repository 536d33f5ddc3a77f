#pragma once

#include "tessera/kernels/cpu/product/matmul_shape.h"
#include "tessera/kernels/cpu/product/weight_layout.h"

namespace tessera::kernels {

/// c = a · b, or a · b plus a row of n biases: the common part of MatMul and Gemm.
class MatrixProduct {
 public:
  virtual ~MatrixProduct() = default;
  virtual size_t scratch_bytes() const { return 0; }
  /// `bias` is read only if the product was made with one; `others` are the operands of spec.then, in order.
  virtual void run(const void* a, const void* b, const void* bias, void* c, void* scratch,
                   std::span<const void* const> others = {}) = 0;
};

struct ProductSpec {
  MatmulShape shape;
  DType operands = DType::undefined;
  DType result = DType::undefined;          ///< of c: that of the operands, or float32 for 16-bit ones
  DType bias = DType::undefined;            ///< undefined: no bias
  std::optional<WeightLayout> weight = {};  ///< of b, if it is packed
  std::vector<onednn::PostOp> then = {};    ///< the epilogue; operands have c_dims(), or 1 where they are repeated
  int threads = 1;
  std::string label;  ///< for messages
};

/// Null if the product cannot include the bias or epilogue (the caller then adds them afterwards), and for 16-bit
/// operands without native kernels (the caller then converts to float32). A user error if the type has no products.
std::unique_ptr<MatrixProduct> make_product(const ProductSpec& spec);

}  // namespace tessera::kernels
