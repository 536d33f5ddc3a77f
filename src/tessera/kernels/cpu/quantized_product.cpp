#include "tessera/base/error.h"
#include "tessera/kernels/cpu/block_form.h"
#include "tessera/kernels/cpu/dispatch.h"
#include "tessera/kernels/cpu/integer_form.h"
#include "tessera/kernels/cpu/matmul_shape.h"
#include "tessera/kernels/cpu/parallel.h"
#include "tessera/kernels/cpu/scratch.h"
#include "tessera/kernels/cpu/sums_epilogue.h"
#include "tessera/kernels/cpu/weight_layout.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

/// Where the matrices of one product of a batch begin, in elements.
struct MatrixPlace {
  int64_t a = 0, b = 0, c = 0;
};

std::vector<MatrixPlace> places_of(const MatmulShape& shape) {
  std::vector<MatrixPlace> places(static_cast<size_t>(shape.batch_count()));
  for (size_t p = 0; p < places.size(); ++p) {
    auto rest = static_cast<int64_t>(p);
    for (size_t d = shape.batch.size(); d-- > 0;) {
      const MatmulBatch& dim = shape.batch[d];
      const int64_t at = rest % dim.extent;
      rest /= dim.extent;
      if (dim.in_a) places[p].a += at * shape.a_strides[d];
      if (dim.in_b) places[p].b += at * shape.b_strides[d];
      places[p].c += at * shape.c_strides[d];
    }
  }
  return places;
}

/// MatMulInteger, and its form with a packed weight: other operands are packed at each run.
std::unique_ptr<Kernel> prepare_matmul_integer(const PrepareContext& context) {
  const TensorDesc& a = context.inputs.at(0);
  const bool is_packed = context.node.domain == "tessera.cpu";
  const TensorDesc b = is_packed ? packed_weight_desc(context.node) : context.inputs.at(1);
  for (const TensorDesc* operand : {&a, &b})
    if (operand->dtype != DType::uint8 && operand->dtype != DType::int8) fail_dtype(context.node, operand->dtype);
  View lies = view_of(b);
  if (context.node.get_int("transB", 0) != 0) lies = permuted(lies, {1, 0});  // only of packed forms
  const MatmulShape shape = matmul_shape(view_of(a), lies, context.node.label());
  const IntegerWeight weight{shape.k, shape.n};
  if (is_packed && static_cast<size_t>(weight.bytes()) != context.inputs[1].bytes())
    fail("kernel", "{}: its packed weight has {} bytes instead of {}; rewrite the program", context.node.label(),
         context.inputs[1].bytes(), weight.bytes());
  const auto count = [&](size_t index) { return context.has_input(index) ? context.inputs[index].count() : 1; };
  const int64_t a_zeros = count(2), b_zeros = count(3), rows = a.dims[a.dims.size() - 2];
  if ((a_zeros != 1 && a_zeros != rows) || (b_zeros != 1 && b_zeros != shape.n))
    fail("kernel", "{}: {} and {} zero points do not fit {} rows and {} columns", context.node.label(), a_zeros,
         b_zeros, rows, shape.n);
  std::shared_ptr<IntegerProduct> product = make_integer_product({shape.m, a.dtype}, weight, b.dtype, context.threads);
  const SumsEpilogue epilogue(context);
  ScratchPlan plan;
  const size_t inner_at = plan.add(product->scratch_bytes());
  const size_t packed_at = plan.add(is_packed ? 0 : static_cast<size_t>(weight.bytes()));
  const size_t sums_at = plan.add(epilogue.is_empty() ? 0 : bytes_of(DType::int32, shape.m * shape.n));
  const size_t columns_at = plan.add(epilogue.scratch_bytes(shape.n));
  return make_kernel(
      [=, m = shape.m, places = places_of(shape), type = b.dtype, threads = context.threads](const KernelArgs& args) {
        const auto zeros = [&](size_t index, int64_t number) {
          return ZeroPoints{index < args.inputs.size() ? args.inputs[index] : nullptr, number};
        };
        const SumsEpilogue::Columns columns =
            epilogue.columns(args, weight.n, nullptr, scratch_at(args.scratch, columns_at));
        for (const MatrixPlace& place : places) {
          const auto* packed = args.in<std::byte>(1);
          if (!is_packed) {
            auto* target = scratch_at<std::byte>(args.scratch, packed_at);
            pack_integers(weight, type, packed + place.b, target, threads);
            packed = target;
          }
          auto* sums = epilogue.is_empty() ? args.out<int32_t>() + place.c : scratch_at<int32_t>(args.scratch, sums_at);
          product->run(args.in<std::byte>(0) + place.a, zeros(2, a_zeros), weight.columns(packed), zeros(3, b_zeros),
                       sums, scratch_at(args.scratch, inner_at));
          if (epilogue.is_empty()) continue;
          std::byte* out = args.out<std::byte>() + place.c * epilogue.element_bytes();
          for_ranges(m, m * weight.n, threads, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
              epilogue.run(args, columns, {}, sums + i * weight.n, 0, weight.n,
                           out + i * weight.n * epilogue.element_bytes());
          });
        }
      },
      plan.bytes());
}

}  // namespace

std::vector<KernelEntry> quantized_kernels() {
  return {
      {"MatMulInteger", "", prepare_matmul_integer, {}},
      {"PackedMatMulInteger", "tessera.cpu", prepare_matmul_integer, {}},
      {"MatMulNBits", "com.microsoft", prepare_block_product, {}},
      {"MatMulBlocks", "tessera", prepare_block_product, {}},
      {"PackedMatMulNBits", "tessera.cpu", prepare_block_product, {}},
      {"PackedMatMulBlocks", "tessera.cpu", prepare_block_product, {}},
  };
}

}  // namespace tessera::kernels
