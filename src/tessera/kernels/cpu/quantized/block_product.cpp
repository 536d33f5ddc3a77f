#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/elementwise/via_float32.h"
#include "tessera/kernels/cpu/library/extents.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/product/matrix_product.h"
#include "tessera/kernels/cpu/quantized/block_digits.h"
#include "tessera/kernels/cpu/quantized/block_form.h"
#include "tessera/kernels/cpu/quantized/block_strip.h"

// A few rows stream through the packed weight: as digits, whose products by codes are of integers, or, where the CPU
// has no instructions for those, as floats, into which codes are turned in registers. For more rows, a thread unpacks a
// part of a strip that fits its cache, and multiplies by it with the library; no float matrix is ever whole.
namespace tessera::kernels {
namespace {

constexpr int64_t kPartRows = 1024;  // of an unpacked part: 256 KiB

/// A thread's products of all rows by an unpacked part [rows, 64] of a strip, of which it takes the first columns.
class PartProducts {
 public:
  PartProducts(int64_t m, int64_t a_stride, int64_t n) : m_(m), a_stride_(a_stride), n_(n) {}

  /// `adds`: to what c holds, instead of replacing it.
  MatrixProduct& of(int64_t rows, int64_t columns, bool adds) {
    std::unique_ptr<MatrixProduct>& product = products_[{rows, columns, adds}];
    if (product) return *product;
    ProductSpec spec{.operands = DType::float32, .result = DType::float32, .threads = 1, .label = "a block product"};
    spec.shape.m = m_;
    spec.shape.n = columns;
    spec.shape.k = rows;
    spec.shape.a_strides = {a_stride_, 1};
    spec.shape.b_strides = {BlockWeight::strip, 1};
    spec.shape.c_strides = {n_, 1};
    if (adds) spec.then = {{.algorithm = dnnl::algorithm::binary_add, .held_by_result = true}};
    product = make_product(spec);
    check(product != nullptr, "the library multiplies float32 matrices");
    return *product;
  }

 private:
  int64_t m_, a_stride_, n_;
  std::map<std::tuple<int64_t, int64_t, bool>, std::unique_ptr<MatrixProduct>> products_;
};

class BlockProduct {
 public:
  BlockProduct(int64_t m, int64_t k, const BlockWeight& weight, int threads)
      : m_(m),
        k_(k),
        weight_(weight),
        threads_(threads),
        depth_(weight.blocks() * weight.block),
        digits_(digit_product(weight)) {
    part_rows_ = std::max<int64_t>(1, kPartRows / weight.block) * weight.block;
    if (m <= most_block_rows) {
      sums_at_ = plan_.add(weight.zeros == BlockWeight::Zeros::none ? 0 : sizeof(float) * m * weight.blocks());
      digits_at_ = plan_.add(digits_.sum ? static_cast<size_t>(m * digit_row_bytes(weight)) : 0);
      return;
    }
    for (int t = 0; t < threads; ++t) {
      PartProducts products(m, depth_, weight.n);
      for (int64_t row = 0; row < depth_; row += part_rows_)
        for (const int64_t columns : {std::min(BlockWeight::strip, weight.n), weight.n % BlockWeight::strip})
          if (columns > 0)
            inner_bytes_ = std::max(inner_bytes_,
                                    products.of(std::min(part_rows_, depth_ - row), columns, row > 0).scratch_bytes());
      products_.push_back(std::move(products));
      part_at_.push_back(plan_.add(sizeof(float) * part_rows_ * BlockWeight::strip));
      inner_at_.push_back(plan_.add(inner_bytes_));
    }
  }

  size_t scratch_bytes() const { return plan_.bytes(); }
  /// Elements of a row of `a`, with zeros beyond k.
  int64_t depth() const { return depth_; }

  void run(const float* a, const std::byte* packed, float* c, void* scratch) {
    if (m_ <= most_block_rows)
      run_rows(a, packed, c, scratch);
    else
      run_parts(a, packed, c, scratch);
  }

 private:
  const std::byte* strip_of(const std::byte* packed, int64_t strip) const {
    return packed + strip * weight_.blocks() * weight_.block_bytes();
  }

  void run_rows(const float* a, const std::byte* packed, float* c, void* scratch) const {
    auto* digits = scratch_at<std::byte>(scratch, digits_at_);
    std::array<bool, most_block_rows> is_finite = {};
    for (int64_t i = 0; i < m_; ++i)
      is_finite[i] = digits_.split ? digits_.split(weight_, a + i * depth_, digits + i * digit_row_bytes(weight_))
                                   : are_finite(a + i * depth_, depth_);
    const bool all = std::all_of(is_finite.begin(), is_finite.begin() + m_, [](bool finite) { return finite; });
    auto* a_sums = scratch_at<float>(scratch, sums_at_);
    if (!digits_.sum && weight_.zeros != BlockWeight::Zeros::none) sum_blocks(a, a_sums);
    const auto sum_rows = [&](int64_t first, int64_t rows, const std::byte* strip, float* sums) {
      if (digits_.sum)
        digits_.sum(weight_, rows, digits + first * digit_row_bytes(weight_), strip, sums);
      else
        sum_block_strip(weight_, rows, a + first * depth_, depth_, a_sums + first * weight_.blocks(), strip, sums);
    };
    for_stream(weight_.strips(), weight_.n * k_, threads_, [&](int64_t strip, int64_t) {
      alignas(64) float sums[most_block_rows * BlockWeight::strip];
      if (all) sum_rows(0, m_, strip_of(packed, strip), sums);
      for (int64_t i = 0; i < m_; ++i) {  // each as it has the same bits by itself
        float* own = sums + i * BlockWeight::strip;
        if (!all && is_finite[i]) sum_rows(i, 1, strip_of(packed, strip), own);
        if (!is_finite[i] || !are_finite(own, BlockWeight::strip))  // or a scale, or a zero point
          sum_row_of_floats(a + i * depth_, strip_of(packed, strip), own);
      }
      const int64_t first = strip * BlockWeight::strip, columns = std::min(BlockWeight::strip, weight_.n - first);
      for (int64_t i = 0; i < m_; ++i) std::copy_n(sums + i * BlockWeight::strip, columns, c + i * weight_.n + first);
    });
  }

  static bool are_finite(const float* numbers, int64_t count) {
    bool finite = true;  // of all, so that compilers compare many at once
    for (int64_t i = 0; i < count; ++i) finite &= std::abs(numbers[i]) <= std::numeric_limits<float>::max();
    return finite;
  }

  /// A row that is not finite, or whose sums are not, as many rows are summed: each code becomes a float before it is
  /// multiplied, so that infinities meet the same numbers.
  void sum_row_of_floats(const float* a, const std::byte* strip, float* sums) const {
    std::vector<float> floats(static_cast<size_t>(weight_.block * BlockWeight::strip));
    std::fill_n(sums, BlockWeight::strip, 0.0F);
    for (int64_t b = 0; b < weight_.blocks(); ++b) {
      unpack_block_strip(weight_, strip, b, 1, floats.data());
      for (int64_t l = 0; l < weight_.block; ++l)
        for (int64_t column = 0; column < BlockWeight::strip; ++column)
          sums[column] += a[b * weight_.block + l] * floats[static_cast<size_t>(l * BlockWeight::strip + column)];
    }
  }

  /// The sum of each block of each row.
  void sum_blocks(const float* a, float* sums) const {
    for (int64_t i = 0; i < m_ * weight_.blocks(); ++i) {
      sums[i] = 0;
      for (int64_t l = 0; l < weight_.block; ++l) sums[i] += a[i * weight_.block + l];
    }
  }

  void run_parts(const float* a, const std::byte* packed, float* c, void* scratch) {
    const int64_t team = std::min<int64_t>(threads_, weight_.strips());
#pragma omp parallel for num_threads(team) schedule(static, 1)
    for (int64_t t = 0; t < team; ++t) {
      auto* part = scratch_at<float>(scratch, part_at_[t]);
      for (int64_t strip = t; strip < weight_.strips(); strip += team) {
        const int64_t first = strip * BlockWeight::strip, columns = std::min(BlockWeight::strip, weight_.n - first);
        for (int64_t row = 0; row < depth_; row += part_rows_) {
          const int64_t rows = std::min(part_rows_, depth_ - row);
          unpack_block_strip(weight_, strip_of(packed, strip), row / weight_.block, rows / weight_.block, part);
          products_[t]
              .of(rows, columns, row > 0)
              .run(a + row, part, nullptr, c + first, scratch_at(scratch, inner_at_[t]));
        }
      }
    }
  }

  int64_t m_, k_;
  BlockWeight weight_;
  int threads_;
  int64_t depth_, part_rows_;
  std::vector<PartProducts> products_;  // of each thread
  std::vector<size_t> part_at_, inner_at_;
  DigitProduct digits_;
  size_t sums_at_ = 0, digits_at_ = 0, inner_bytes_ = 0;
  ScratchPlan plan_;
};

/// The operand as float32 rows of `depth` elements, zeros beyond the k that it has.
void widen_rows(DType dtype, const void* a, int64_t m, int64_t k, int64_t depth, float* rows, int threads) {
  const auto element = static_cast<int64_t>(bytes_of(dtype, 1));
  for_ranges(m, m * depth, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      widen(dtype, static_cast<const std::byte*>(a) + i * k * element, rows + i * depth, k, 1);
      std::fill(rows + i * depth + k, rows + (i + 1) * depth, 0.0F);
    }
  });
}

}  // namespace

std::unique_ptr<Kernel> prepare_block_product(const PrepareContext& context) {
  const Node& node = context.node;
  const TensorDesc &a = context.inputs.at(0), &c = context.outputs.at(0);
  if (a.dtype != DType::float32 && a.dtype != DType::float16 && a.dtype != DType::bfloat16) fail_dtype(node, a.dtype);
  const bool is_packed = node.domain == "tessera.cpu";
  const TensorDesc codes = is_packed ? packed_weight_desc(node) : context.inputs.at(1);
  const DType zero_type = context.has_input(3) ? context.inputs[3].dtype : DType::undefined;
  const TensorDesc& scales = context.inputs.at(2);
  const auto form = block_form(node, packed_operator(node), codes, {scales.dtype, zero_type, scales.count() == 1});
  if (!form)
    fail("kernel", "{}: its blocks of {} {} codes are not supported; use blocks of 16 rows or more", node.label(),
         node.get_int("block_size", 0), name_of(codes.dtype));
  const BlockWeight& weight = form->weight;
  const int64_t k = a.dims.back(), m = k == 0 ? count_of(Dims(a.dims.begin(), a.dims.end() - 1)) : a.count() / k;
  if (c.count() == 0) return make_kernel([](const KernelArgs&) {});
  if (k == 0 || weight.blocks() == 0)
    return make_kernel(
        [bytes = c.bytes()](const KernelArgs& args) { std::fill_n(args.out<std::byte>(), bytes, std::byte{0}); });
  auto product = std::make_shared<BlockProduct>(m, k, weight, context.threads);
  const bool copies = a.dtype != DType::float32 || product->depth() != k;
  ScratchPlan plan;
  const size_t rows_at = plan.add(copies ? sizeof(float) * m * product->depth() : 0);
  const size_t wide_at = plan.add(c.dtype == DType::float32 ? 0 : bytes_of(DType::float32, c.count()));
  const size_t packed_at = plan.add(is_packed ? 0 : static_cast<size_t>(weight.bytes()));
  const size_t inner_at = plan.add(product->scratch_bytes());
  return make_kernel(
      [=, form = *form, a_type = a.dtype, c_type = c.dtype, count = c.count(),
       threads = context.threads](const KernelArgs& args) {
        const auto* packed = args.in<std::byte>(1);
        if (!is_packed) {
          BlockSource source = form.source;
          source.codes = args.inputs[1];
          source.scales = args.inputs[2];
          source.zeros = args.inputs.size() > 3 ? args.inputs[3] : nullptr;
          auto* target = scratch_at<std::byte>(args.scratch, packed_at);
          pack_blocks(form.weight, source, target, threads);
          packed = target;
        }
        const auto* rows = args.in<float>(0);
        if (copies) {
          auto* copy = scratch_at<float>(args.scratch, rows_at);
          widen_rows(a_type, args.inputs[0], m, k, product->depth(), copy, threads);
          rows = copy;
        }
        const bool narrows = c_type != DType::float32;
        float* result = narrows ? scratch_at<float>(args.scratch, wide_at) : args.out<float>();
        product->run(rows, packed, result, scratch_at(args.scratch, inner_at));
        if (narrows) narrow(result, c_type, args.outputs[0], count, threads);
      },
      plan.bytes());
}

}  // namespace tessera::kernels
