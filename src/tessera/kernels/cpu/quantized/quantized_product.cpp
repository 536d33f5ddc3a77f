#include <array>
#include <map>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/product/matmul_shape.h"
#include "tessera/kernels/cpu/product/weight_layout.h"
#include "tessera/kernels/cpu/quantized/block_form.h"
#include "tessera/kernels/cpu/quantized/integer_form.h"
#include "tessera/kernels/cpu/quantized/integer_product.h"
#include "tessera/kernels/cpu/quantized/sums_epilogue.h"
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

/// A product in blocks of rows and columns, each of which one thread computes and finishes while its sums are in the
/// second cache, as its part of the weight is. A few rows are one block, which all threads compute together.
class ProductInBlocks {
 public:
  ProductInBlocks(const MatmulShape& shape, DType a_type, DType b_type, int threads)
      : m_(shape.m), weight_{shape.k, shape.n}, rows_(shape.m), columns_(shape.n), threads_(threads) {
    const bool whole = m_ <= most_integer_rows || weight_.k == 0 || weight_.n == 0;
    if (!whole) divide();
    members_ = whole ? 1 : threads;
    const int team = whole ? threads : 1;
    size_t inner = 0;
    for (const int64_t rows : {rows_, m_ % std::max<int64_t>(rows_, 1)})
      for (const int64_t columns : {columns_, weight_.n % std::max<int64_t>(columns_, 1)})
        for (int64_t member = 0; member < members_ && rows > 0 && columns > 0; ++member) {
          auto& product = products_[{member, rows, columns}];
          if (!product) product = make_integer_product({rows, a_type}, {weight_.k, columns}, b_type, team);
          inner = std::max(inner, product->scratch_bytes());
        }
    for (int64_t member = 0; member < members_; ++member)
      own_.push_back({plan_.add(bytes_of(DType::int32, rows_ * columns_)), plan_.add(inner)});
  }

  size_t scratch_bytes() const { return plan_.bytes(); }

  /// Calls finish(sums, row, rows, column, columns) for parts of the result. `plain`: as IntegerProduct::run_plain().
  template <typename Finish>
  void run(const std::byte* a, ZeroPoints a_zero, const std::byte* packed, ZeroPoints b_zero, bool plain, void* scratch,
           const Finish& finish) {
    if (products_.empty()) return;
    const int64_t high = blocks_of_rows();
    const auto block = [&](int64_t index, int64_t member) {
      const int64_t row = index % high * rows_, column = index / high * columns_;
      const int64_t rows = std::min(rows_, m_ - row), columns = std::min(columns_, weight_.n - column);
      const auto& [sums_at, inner_at] = own_[member];
      auto* sums = scratch_at<int32_t>(scratch, sums_at);
      const ZeroPoints zeros =
          b_zero.count == 1 ? b_zero : ZeroPoints{static_cast<const std::byte*>(b_zero.data) + column, columns};
      IntegerProduct& product = *products_.at({member, rows, columns});
      const PackedColumns b = weight_.columns(packed, column / kColumnsOfStrip);
      const ZeroPoints row_zeros{a_zero.data, a_zero.count, row};
      if (plain)
        product.run_plain(a + row * weight_.k, b, sums, scratch_at(scratch, inner_at));
      else
        product.run(a + row * weight_.k, row_zeros, b, zeros, sums, scratch_at(scratch, inner_at));
      const int team = members_ == 1 ? threads_ : 1;
      for_ranges(rows, rows * columns, team, [&](int64_t begin, int64_t end) {
        finish(sums + begin * columns, row + begin, end - begin, column, columns);
      });
    };
    for_stream(blocks(), m_ * weight_.n * weight_.k, threads_, block);
  }

 private:
  static constexpr int64_t kColumnsOfStrip = 64, kBytesOfSums = 256 * 1024, kBytesOfWeight = 512 * 1024;
  static constexpr int64_t kFewestRows = 32;

  struct OwnScratch {
    size_t sums, inner;
  };

  int64_t blocks_of_rows() const { return pieces(m_, rows_); }
  int64_t blocks() const { return blocks_of_rows() * pieces(weight_.n, columns_); }

  // Several blocks for each thread. Neighbouring ones share their part of the weight.
  void divide() {
    columns_ = std::min(weight_.n, multiple_in(kBytesOfWeight / weight_.depth(), kColumnsOfStrip));
    rows_ = std::min(m_, multiple_in(kBytesOfSums / (columns_ * 4), kFewestRows));
    if (threads_ == 1) return;
    const int64_t wanted = 4 * static_cast<int64_t>(threads_);
    if (blocks() < wanted)
      columns_ = std::min(columns_, multiple_over(pieces(weight_.n * blocks_of_rows(), wanted), kColumnsOfStrip));
    if (blocks() < wanted)
      rows_ = std::min(rows_, multiple_over(pieces(m_ * pieces(weight_.n, columns_), wanted), kFewestRows));
  }

  // So many pieces of that size hold all.
  static int64_t pieces(int64_t all, int64_t size) { return (all + size - 1) / size; }
  // The largest multiple of `unit` that is no more than `count`, one unit at least; the smallest that is no less.
  static int64_t multiple_in(int64_t count, int64_t unit) { return std::max(unit, count / unit * unit); }
  static int64_t multiple_over(int64_t count, int64_t unit) { return pieces(count, unit) * unit; }

  int64_t m_;
  IntegerWeight weight_;
  int64_t rows_, columns_, members_ = 1;
  int threads_;
  std::map<std::array<int64_t, 3>, std::unique_ptr<IntegerProduct>> products_;  // by member, rows and columns
  ScratchPlan plan_;
  std::vector<OwnScratch> own_;
};

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
  auto product = std::make_shared<ProductInBlocks>(shape, a.dtype, b.dtype, context.threads);
  const SumsEpilogue epilogue(context);
  ScratchPlan plan;
  const size_t inner_at = plan.add(product->scratch_bytes());
  const size_t packed_at = plan.add(is_packed ? 0 : static_cast<size_t>(weight.bytes()));
  const size_t columns_at = plan.add(epilogue.scratch_bytes(shape.n));
  const size_t corrections_at = plan.add(epilogue.has_columns() ? bytes_of(DType::int32, shape.n) : 0);
  return make_kernel(
      [=, places = places_of(shape), a_type = a.dtype, b_type = b.dtype,
       threads = context.threads](const KernelArgs& args) {
        const auto zeros = [&](size_t index, int64_t number) {
          return ZeroPoints{index < args.inputs.size() ? args.inputs[index] : nullptr, number};
        };
        for (const MatrixPlace& place : places) {
          const auto* packed = args.in<std::byte>(1);
          if (!is_packed) {
            auto* target = scratch_at<std::byte>(args.scratch, packed_at);
            pack_integers(weight, b_type, packed + place.b, target, threads);
            packed = target;
          }
          // What zero points change about all rows alike is added with the columns' other numbers.
          auto* corrections = scratch_at<int32_t>(args.scratch, corrections_at);
          const bool alike =
              epilogue.has_columns() && plain_correction(a_type, zeros(2, a_zeros), b_type, zeros(3, b_zeros),
                                                         weight.columns(packed), weight.n, corrections);
          const SumsEpilogue::Columns of_results =
              epilogue.columns(args, weight.n, alike ? corrections : nullptr, scratch_at(args.scratch, columns_at));
          std::byte* out = args.out<std::byte>() + place.c * epilogue.element_bytes();
          product->run(args.in<std::byte>(0) + place.a, zeros(2, a_zeros), packed, zeros(3, b_zeros),
                       alike && of_results.addend, scratch_at(args.scratch, inner_at),
                       [&](const int32_t* sums, int64_t row, int64_t rows, int64_t column, int64_t columns) {
                         epilogue.run(args, of_results, {rows, columns, weight.n}, sums, column, columns,
                                      out + (row * weight.n + column) * epilogue.element_bytes());
                       });
        }
      },
      plan.bytes());
}

}  // namespace

std::vector<KernelEntry> quantized_kernels() {
  return {
      {.op_type = "MatMulInteger", .domain = "", .prepare = prepare_matmul_integer, .pack = pack_integer_product},
      {"PackedMatMulInteger", "tessera.cpu", prepare_matmul_integer, {}},
      {.op_type = "MatMulNBits",
       .domain = "com.microsoft",
       .prepare = prepare_block_product,
       .pack = pack_block_product},
      {.op_type = "MatMulBlocks", .domain = "tessera", .prepare = prepare_block_product, .pack = pack_block_product},
      {"PackedMatMulNBits", "tessera.cpu", prepare_block_product, {}},
      {"PackedMatMulBlocks", "tessera.cpu", prepare_block_product, {}},
  };
}

}  // namespace tessera::kernels
