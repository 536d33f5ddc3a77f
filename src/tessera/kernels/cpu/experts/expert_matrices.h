#pragma once

#include <memory>

#include "tessera/base/error.h"
#include "tessera/ir/experts.h"
#include "tessera/kernels/cpu/elementwise/via_float32.h"
#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/quantized/coded_product.h"

/// The matrices of a mixture of experts, one per expert, by which its kernel multiplies tiles of `tile` rows.
namespace tessera::kernels {

/// C is the type in which products are computed.
template <typename C>
class ExpertMatrices {
 public:
  virtual ~ExpertMatrices() = default;
  virtual size_t scratch_bytes() const = 0;
  /// The expert whose matrix multiply() takes from now on.
  virtual void choose(int64_t expert, const KernelArgs& args) = 0;
  /// rows [tile, in] by the matrix; `scratch` has scratch_bytes().
  virtual void multiply(const C* rows, C* result, void* scratch) = 0;
};

/// Matrices of numbers of type T, in any layout that products read; widened to C when their expert is chosen.
template <typename T, typename C>
class PlainMatrices : public ExpertMatrices<C> {
 public:
  PlainMatrices(const PrepareContext& context, size_t operand, int64_t tile, ScratchPlan& plan)
      : operand_(operand), threads_(context.threads) {
    const TensorDesc& desc = context.inputs[operand];
    const View all = view_of(desc);
    const View one{{all.dims[1], all.dims[2]}, {all.strides[1], all.strides[2]}, 0};
    stride_ = all.strides[0];
    count_ = count_of(one.dims);
    if constexpr (!std::is_same_v<T, C>) wide_at_ = plan.add(bytes_of(dtype_of<C>(), count_));
    const ProductSpec spec{.shape = matmul_shape(View::dense({tile, one.dims[0]}), one, context.node.label()),
                           .operands = dtype_of<C>(),
                           .result = dtype_of<C>(),
                           .threads = context.threads,
                           .label = context.node.label()};
    product_ = make_product(spec);
    check(product_ != nullptr, "there are products of every type in which experts are computed");
  }

  size_t scratch_bytes() const override { return product_->scratch_bytes(); }

  void choose(int64_t expert, const KernelArgs& args) override {
    const T* matrix = args.in<T>(operand_) + expert * stride_;
    if constexpr (std::is_same_v<T, C>) {
      chosen_ = matrix;
    } else {
      C* wide = scratch_at<C>(args.scratch, wide_at_);
      widen(dtype_of<T>(), matrix, wide, count_, threads_);
      chosen_ = wide;
    }
  }

  void multiply(const C* rows, C* result, void* scratch) override {
    product_->run(rows, chosen_, nullptr, result, scratch);
  }

 private:
  size_t operand_;
  int threads_;
  int64_t stride_ = 0, count_ = 0;
  size_t wide_at_ = 0;
  const C* chosen_ = nullptr;
  std::unique_ptr<MatrixProduct> product_;
};

/// Matrices of codes.
class CodedMatrices : public ExpertMatrices<float> {
 public:
  CodedMatrices(const PrepareContext& context, const ExpertsCodes& operands, int64_t tile)
      : operands_(operands), has_zeros_(context.has_input(operands.zeros)) {
    const Dims &codes = context.inputs[operands.codes].dims, &scales = context.inputs.at(operands.scales).dims;
    matrix_.bits = static_cast<int>(context.node.get_int(operands.bits, 4));
    matrix_.n = codes.at(1);
    matrix_.k = codes.at(2) * 8 / matrix_.bits;
    blocks_ = scales.at(2);
    matrix_.block = blocks_ == 1 ? std::max<int64_t>(matrix_.k, 1) : context.node.get_int("block_size", 1);
    const Dims beside{codes[0], matrix_.n, blocks_};
    if (scales != beside || (blocks_ != 1 && matrix_.blocks() != blocks_) ||
        (has_zeros_ && context.inputs[operands.zeros].dims != beside))
      fail("kernel", "{}: codes, scales and zero points do not fit together", context.node.label());
    product_ = std::make_unique<CodedProduct>(tile, matrix_, context.threads);
  }

  size_t scratch_bytes() const override { return product_->scratch_bytes(); }

  void choose(int64_t expert, const KernelArgs& args) override {
    const int64_t of_blocks = expert * matrix_.n * blocks_;
    chosen_ = {.codes = args.in<uint8_t>(operands_.codes) + expert * matrix_.n * (matrix_.k * matrix_.bits / 8),
               .scales = args.in<float>(operands_.scales) + of_blocks,
               .zeros = has_zeros_ ? args.in<uint8_t>(operands_.zeros) + of_blocks : nullptr};
  }

  void multiply(const float* rows, float* result, void* scratch) override {
    product_->run(rows, chosen_, result, scratch);
  }

 private:
  ExpertsCodes operands_;
  bool has_zeros_;
  int64_t blocks_ = 0;
  CodedMatrix matrix_;
  CodedMatrixData chosen_;
  std::unique_ptr<CodedProduct> product_;
};

}  // namespace tessera::kernels
