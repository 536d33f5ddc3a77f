#include "tessera/base/error.h"
#include "tessera/kernels/cpu/elementwise/followers.h"
#include "tessera/kernels/cpu/elementwise/via_float32.h"
#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/product/matrix_product.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

/// The operands of a product; the second one has its type from before packing, if it is packed.
struct Operands {
  TensorDesc a, b;
  std::optional<WeightLayout> weight;
};

Operands operands_of(const PrepareContext& context) {
  const Node& node = context.node;
  Operands operands{context.inputs.at(0), context.inputs.at(1), std::nullopt};
  if (node.domain == "tessera.cpu") {
    operands.b = packed_weight_desc(node);
    operands.weight = product_weight_layout(node, operands.b);
    if (!operands.weight || operands.weight->bytes() != context.inputs[1].bytes())
      fail("kernel", "{}: its packed weight has {} bytes, which is not this machine's form; rewrite the program for it",
           node.label(), context.inputs[1].bytes());
  } else if (operands.a.dtype != operands.b.dtype) {
    fail("kernel", "{}: operands are {} and {}; cast one of them", node.label(), name_of(operands.a.dtype),
         name_of(operands.b.dtype));
  }
  return operands;
}

ProductSpec spec_of(const PrepareContext& context, const Operands& operands, MatmulShape shape) {
  return {.shape = std::move(shape),
          .operands = operands.a.dtype,
          .result = context.outputs.at(0).dtype,
          .weight = operands.weight,
          .threads = context.threads,
          .label = context.node.label()};
}

/// The product with its followers; null if no library kernel computes both. The first addition of a row is its bias.
std::unique_ptr<Kernel> product_with_followers(const PrepareContext& context, ProductSpec spec) {
  if (spec.shape.result_count() == 0 || spec.shape.k == 0 || !spec.shape.batch.empty()) return nullptr;
  const auto is_row = [&](int operand) { return context.inputs[operand].count() != context.outputs[0].count(); };
  std::vector<Follower> followers = context.followers;
  const Follower first = followers.front();
  const bool with_bias = first.node->is("Add") && is_row(first.other());
  if (with_bias) {
    followers.erase(followers.begin());
    spec.bias = context.inputs[first.other()].dtype;
  }
  spec.then = post_ops(followers, [&](int operand) {
    return onednn::dense(context.inputs[operand].dtype, {is_row(operand) ? 1 : spec.shape.m, spec.shape.n});
  });
  std::shared_ptr<MatrixProduct> product = make_product(spec);
  if (!product) return nullptr;
  std::vector<int> others;
  for (const Follower& follower : followers)
    if (follower.other() >= 0) others.push_back(follower.other());
  return make_kernel(
      [product, others, with_bias, bias = first.other(),
       addresses = std::vector<const void*>(others.size())](const KernelArgs& args) mutable {
        for (size_t i = 0; i < others.size(); ++i) addresses[i] = args.inputs[others[i]];
        product->run(args.inputs[0], args.inputs[1], with_bias ? args.inputs[bias] : nullptr, args.outputs[0],
                     args.scratch, addresses);
      },
      product->scratch_bytes());
}

/// Only our domain's forms have an attribute for an operand that is stored transposed; ONNX's MatMul has none.
MatmulShape shape_of(const PrepareContext& context, const Operands& operands) {
  View b = view_of(operands.b);
  if (context.node.get_int("transB", 0) != 0) b = permuted(b, {1, 0});
  return matmul_shape(view_of(operands.a), b, context.node.label(), context.outputs.at(0).strides);
}

std::unique_ptr<Kernel> prepare_matmul(const PrepareContext& context) {
  const Operands operands = operands_of(context);
  const ProductSpec spec = spec_of(context, operands, shape_of(context, operands));
  if (!context.followers.empty()) {
    auto fused = product_with_followers(context, spec);
    return fused ? std::move(fused) : run_in_turn(context, prepare_matmul);
  }
  std::shared_ptr<MatrixProduct> product = make_product(spec);
  if (!product) return via_float32(context, prepare_matmul);
  return make_kernel(
      [product](const KernelArgs& args) {
        product->run(args.inputs[0], args.inputs[1], nullptr, args.outputs[0], args.scratch);
      },
      product->scratch_bytes());
}

/// Gemm's epilogue: y = alpha · product + beta · c, with c repeated along the dimensions that it lacks.
struct Epilogue {
  int64_t m, n;
  float alpha, beta;
  bool with_c;
  int64_t c_row, c_column;  ///< strides of c in elements, 0 where it is repeated
  int threads;

  bool is_identity() const { return alpha == 1 && !with_c; }
  bool is_row_bias() const { return alpha == 1 && beta == 1 && with_c && c_row == 0 && c_column == 1; }

  /// `product` is of T's compute type, and may be in y's memory.
  template <typename T, typename R>
  void run(const Compute<T>* product, const T* c, R* y) const {
#pragma omp parallel for num_threads(team_for(m* n, threads)) schedule(static)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        Compute<T> value = scaled<T>(alpha, product[i * n + j]);
        if (with_c) value += scaled<T>(beta, load(c[i * c_row + j * c_column]));
        y[i * n + j] = store<R>(value);
      }
  }

 private:
  /// Exact for integers if the factor is 1.
  template <typename T>
  static Compute<T> scaled(float factor, Compute<T> value) {
    if (factor == 1) return value;
    return static_cast<Compute<T>>(factor * value);
  }
};

Epilogue epilogue_of(const PrepareContext& context, const MatmulShape& shape) {
  const Node& node = context.node;
  Epilogue epilogue{shape.m, shape.n,        node.get_float("alpha", 1), node.get_float("beta", 1), false, 0,
                    0,       context.threads};
  if (!context.has_input(2) || epilogue.beta == 0) return epilogue;
  Dims c = context.inputs[2].dims;
  c.insert(c.begin(), 2 - std::min<size_t>(c.size(), 2), 1);
  if (c.size() != 2 || (c[0] != 1 && c[0] != shape.m) || (c[1] != 1 && c[1] != shape.n))
    fail("kernel", "{}: C does not broadcast to the result [{}, {}]", node.label(), shape.m, shape.n);
  epilogue.with_c = true;
  epilogue.c_row = c[0] == 1 ? 0 : c[1];
  epilogue.c_column = c[1] == 1 && shape.n != 1 ? 0 : 1;
  return epilogue;
}

/// The kernel of a Gemm with more than a row of biases after the product. R is T, or float for sums of 16-bit T.
template <typename T, typename R>
std::unique_ptr<Kernel> gemm_with_epilogue(ProductSpec spec, const Epilogue& epilogue) {
  spec.result = dtype_of<Compute<T>>();
  std::shared_ptr<MatrixProduct> product = make_product(spec);
  if (!product) return nullptr;
  ScratchPlan plan;
  const size_t inner_at = plan.add(product->scratch_bytes());
  const size_t wide_at = plan.add(is_narrow_float<R> ? bytes_of(spec.result, epilogue.m * epilogue.n) : 0);
  return make_kernel(
      [=](const KernelArgs& args) {
        void* result = is_narrow_float<R> ? scratch_at(args.scratch, wide_at) : args.outputs[0];
        product->run(args.inputs[0], args.inputs[1], nullptr, result, scratch_at(args.scratch, inner_at));
        epilogue.run<T, R>(static_cast<const Compute<T>*>(result), epilogue.with_c ? args.in<T>(2) : nullptr,
                           args.out<R>());
      },
      plan.bytes());
}

std::unique_ptr<Kernel> prepare_gemm(const PrepareContext& context) {
  const Node& node = context.node;
  const Operands operands = operands_of(context);
  ProductSpec spec = spec_of(context, operands,
                             gemm_shape(view_of(operands.a), view_of(operands.b), node.get_int("transA", 0) != 0,
                                        node.get_int("transB", 0) != 0, node.label()));
  if (!context.followers.empty()) {
    auto fused = product_with_followers(context, spec);
    return fused ? std::move(fused) : run_in_turn(context, prepare_gemm);
  }
  const Epilogue epilogue = epilogue_of(context, spec.shape);
  const bool empty = spec.shape.result_count() == 0 || spec.shape.k == 0;
  if (epilogue.is_identity() || (epilogue.is_row_bias() && !empty)) {
    if (epilogue.with_c) spec.bias = context.inputs[2].dtype;
    if (std::shared_ptr<MatrixProduct> product = make_product(spec))
      return make_kernel(
          [product, with_c = epilogue.with_c](const KernelArgs& args) {
            product->run(args.inputs[0], args.inputs[1], with_c ? args.inputs[2] : nullptr, args.outputs[0],
                         args.scratch);
          },
          product->scratch_bytes());
    spec.bias = DType::undefined;
  }
  using GemmTypes = Types<float, double, BFloat16, Float16, int32_t, int64_t, uint32_t, uint64_t>;
  auto kernel = dispatch(GemmTypes(), node, operands.a.dtype, [&]<typename T>() {
    if (is_narrow_float<T> && context.outputs[0].dtype == DType::float32)
      return gemm_with_epilogue<T, float>(spec, epilogue);
    return gemm_with_epilogue<T, T>(spec, epilogue);
  });
  return kernel ? std::move(kernel) : via_float32(context, prepare_gemm);
}

/// Rows that one matrix multiplies must stay rows of one matrix, which packed weights and epilogues need, too.
bool takes_product_operand(const Node& node, int operand, const View& view) {
  if (!is_product_operand(view)) return false;
  const bool by_matrix = node.input(1) && node.input(1)->rank() <= 2;
  if (operand == 1 || !by_matrix || view.dims.size() <= 2) return true;
  const int64_t width = view.dims.back();
  return width > 0 && view.strides.back() == 1 && reshaped(view, {count_of(view.dims) / width, width});
}

}  // namespace

std::vector<KernelEntry> matmul_kernels() {
  const KernelEntry product{.op_type = "MatMul",
                            .domain = "",
                            .prepare = prepare_matmul,
                            .strided = {0, 1},
                            .takes_strided = takes_product_operand,
                            .strides_result = true,
                            .pack = pack_product};
  KernelEntry wide_product = product, gemm = product;
  wide_product.domain = "tessera";
  gemm.op_type = "Gemm";
  gemm.prepare = prepare_gemm;
  gemm.strides_result = false;
  KernelEntry wide_gemm = gemm;
  wide_gemm.domain = "tessera";
  return {
      product,
      wide_product,
      gemm,
      wide_gemm,
      {.op_type = "PackedMatMul", .domain = "tessera.cpu", .prepare = prepare_matmul},
      {.op_type = "PackedGemm", .domain = "tessera.cpu", .prepare = prepare_gemm},
  };
}

}  // namespace tessera::kernels
