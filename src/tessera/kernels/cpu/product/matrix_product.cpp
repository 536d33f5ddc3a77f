#include "tessera/kernels/cpu/product/matrix_product.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/product/matmul_plain.h"
#include "tessera/kernels/cpu/product/row_product.h"
#include "tessera/kernels/cpu/product/widened_product.h"

namespace tessera::kernels {
namespace {

using onednn::Md;

/// A product without elements, or a sum of none.
class ZeroProduct : public MatrixProduct {
 public:
  explicit ZeroProduct(size_t bytes) : bytes_(bytes) {}
  void run(const void*, const void*, const void*, void* c, void*, std::span<const void* const>) override {
    if (bytes_ > 0) std::memset(c, 0, bytes_);
  }

 private:
  size_t bytes_;
};

template <typename T>
class PlainProduct : public MatrixProduct {
 public:
  explicit PlainProduct(const ProductSpec& spec) : shape_(spec.shape), threads_(spec.threads) {}
  void run(const void* a, const void* b, const void*, void* c, void*, std::span<const void* const>) override {
    plain_matmul(shape_, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(c), threads_);
  }

 private:
  MatmulShape shape_;
  int threads_;
};

class OnednnProduct : public MatrixProduct {
 public:
  OnednnProduct(const dnnl::matmul::primitive_desc& desc, const std::vector<onednn::Primitive::Argument>& arguments,
                bool with_bias, int threads)
      : primitive_(dnnl::matmul(desc), desc.scratchpad_desc(), arguments, threads),
        addresses_(arguments.size()),
        first_other_(with_bias ? 4 : 3) {}

  size_t scratch_bytes() const override { return primitive_.scratch_bytes(); }

  void run(const void* a, const void* b, const void* bias, void* c, void* scratch,
           std::span<const void* const> others) override {
    addresses_[0] = a;
    addresses_[1] = b;
    addresses_[2] = c;
    if (first_other_ == 4) addresses_[3] = bias;
    std::copy(others.begin(), others.end(), addresses_.begin() + first_other_);
    primitive_.run(addresses_, scratch);
  }

 private:
  onednn::Primitive primitive_;
  std::vector<const void*> addresses_;  // a, b, c, the bias if there is one, the others
  int first_other_;
};

/// A product that wants its second operand in another layout than it has: brings it there at every run.
class ReorderingProduct : public MatrixProduct {
 public:
  ReorderingProduct(std::unique_ptr<onednn::Primitive> reorder, size_t wanted_bytes,
                    std::unique_ptr<MatrixProduct> product)
      : reorder_(std::move(reorder)),
        product_(std::move(product)),
        wanted_at_(plan_.add(wanted_bytes)),
        inner_at_(plan_.add(std::max(reorder_->scratch_bytes(), product_->scratch_bytes()))) {}

  size_t scratch_bytes() const override { return plan_.bytes(); }

  void run(const void* a, const void* b, const void* bias, void* c, void* scratch,
           std::span<const void* const> others) override {
    void* wanted = scratch_at(scratch, wanted_at_);
    void* inner = scratch_at(scratch, inner_at_);
    reorder_->run(std::array<const void*, 2>{b, wanted}, inner);
    product_->run(a, wanted, bias, c, inner, others);
  }

 private:
  std::unique_ptr<onednn::Primitive> reorder_;
  std::unique_ptr<MatrixProduct> product_;
  ScratchPlan plan_;
  size_t wanted_at_, inner_at_;
};

/// A product by the one that makes its transposed result.
class TurnedProduct : public MatrixProduct {
 public:
  explicit TurnedProduct(std::unique_ptr<MatrixProduct> product) : product_(std::move(product)) {}
  size_t scratch_bytes() const override { return product_->scratch_bytes(); }
  void run(const void* a, const void* b, const void*, void* c, void* scratch, std::span<const void* const>) override {
    product_->run(b, a, nullptr, c, scratch);
  }

 private:
  std::unique_ptr<MatrixProduct> product_;
};

std::unique_ptr<MatrixProduct> onednn_product(const ProductSpec& spec, const Md& b) {
  onednn::TeamScope team(spec.threads);
  const Md a = onednn::strided(spec.operands, spec.shape.a_dims(), spec.shape.a_strides);
  const Md c = onednn::strided(spec.result, spec.shape.c_dims(), spec.shape.c_strides);
  std::vector<onednn::Primitive::Argument> arguments{{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}};
  Md bias;
  if (spec.bias != DType::undefined) {
    Dims row(spec.shape.batch.size() + 2, 1);
    row.back() = spec.shape.n;
    bias = onednn::dense(spec.bias, row);
    arguments.push_back({DNNL_ARG_BIAS, bias});
  }
  for (size_t i = 0; i < spec.then.size(); ++i)
    if (spec.then[i].binary()) arguments.push_back({onednn::post_op_argument(i), spec.then[i].operand});
  auto desc = onednn::matmul(a, b, bias, c, spec.then);
  if (!desc) return nullptr;
  return std::make_unique<OnednnProduct>(*desc, arguments, spec.bias != DType::undefined, spec.threads);
}

std::unique_ptr<MatrixProduct> packed_product(ProductSpec spec) {
  const WeightLayout weight = *spec.weight;
  if (spec.operands != weight.stored) return nullptr;
  if (is_row_product(spec)) return make_row_product(spec);
  // The packed form has b's own dimensions; if the product merged them, the layout is not b's.
  if (onednn::dims_of(weight.packed) == spec.shape.b_dims())
    if (auto product = onednn_product(spec, weight.packed)) return product;
  if (!spec.then.empty()) return nullptr;  // the packed product, followed by the rest in turn, is better
  spec.weight.reset();
  auto product = make_product(spec);
  auto unpack = onednn::reorder(weight.packed, weight.plain, spec.threads);
  if (!product || !unpack) return product;
  return std::make_unique<ReorderingProduct>(std::move(unpack), weight.plain.get_size(), std::move(product));
}

// Rows of the second operand that are a multiple of 4096 bytes apart fall into the same sets of the first cache, so
// that each of them drives the others out. Where many rows of the first operand read it, a packed copy is faster.
bool wants_packing(const ProductSpec& spec) {
  constexpr int64_t kPage = 4096, kLeastRows = 64;
  const MatmulShape& shape = spec.shape;
  return shape.batch.empty() && shape.m >= kLeastRows && shape.b_strides[1] == 1 &&
         static_cast<int64_t>(bytes_of(spec.operands, shape.b_strides[0])) % kPage == 0;
}

std::unique_ptr<MatrixProduct> library_product(const ProductSpec& spec) {
  const MatmulShape& shape = spec.shape;
  const Md b = onednn::strided(spec.operands, shape.b_dims(), shape.b_strides);
  if (wants_packing(spec)) {
    onednn::TeamScope team(spec.threads);
    auto packed = onednn::matmul(onednn::strided(spec.operands, shape.a_dims(), shape.a_strides),
                                 onednn::any_layout(spec.operands, shape.b_dims()), {},
                                 onednn::strided(spec.result, shape.c_dims(), shape.c_strides));
    if (packed) {
      const Md wanted = packed->weights_desc();
      auto pack = onednn::reorder(b, wanted, spec.threads);
      auto product = pack ? onednn_product(spec, wanted) : nullptr;
      if (product) return std::make_unique<ReorderingProduct>(std::move(pack), wanted.get_size(), std::move(product));
    }
  }
  return onednn_product(spec, b);
}

}  // namespace

std::unique_ptr<MatrixProduct> make_product(const ProductSpec& spec) {
  if ((spec.shape.result_count() == 0 || spec.shape.k == 0) && spec.then.empty())
    return std::make_unique<ZeroProduct>(bytes_of(spec.result, spec.shape.result_count()));
  if (spec.weight) return packed_product(spec);
  if (spec.shape.c_strides.back() != 1) {
    check(spec.bias == DType::undefined && spec.then.empty(), "nothing follows a product that is stored by columns");
    ProductSpec turned = spec;
    turned.shape = spec.shape.turned();
    auto product = make_product(turned);
    return product ? std::make_unique<TurnedProduct>(std::move(product)) : nullptr;
  }
  if (auto product = widened_product(spec)) return product;
  if (onednn::is_native(spec.operands))
    if (auto product = library_product(spec)) return product;
  if (spec.bias != DType::undefined || !spec.then.empty()) return nullptr;
  switch (spec.operands) {
    case DType::float32:
      return std::make_unique<PlainProduct<float>>(spec);
    case DType::float64:
      return std::make_unique<PlainProduct<double>>(spec);
    case DType::int32:
      return std::make_unique<PlainProduct<int32_t>>(spec);
    case DType::int64:
      return std::make_unique<PlainProduct<int64_t>>(spec);
    case DType::uint32:
      return std::make_unique<PlainProduct<uint32_t>>(spec);
    case DType::uint64:
      return std::make_unique<PlainProduct<uint64_t>>(spec);
    case DType::float16:
    case DType::bfloat16:
      return nullptr;
    default:
      fail("kernel", "{}: there is no product of {} operands on the CPU; cast them to float32, or MatMul's other types",
           spec.label, name_of(spec.operands));
  }
}

}  // namespace tessera::kernels
