#include "tessera/kernels/cpu/product/widened_product.h"

#include <algorithm>
#include <map>

#include "tessera/kernels/cpu/elementwise/via_float32.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/scratch.h"

// The longest of the product's dimensions m, k and n is cut into panels, so that the widened operands stay small.
// Panels of k add up in float32.
//
// Example: [512, 768] · [768, 50257] has panels of 4096 columns. The first operand is widened once; for each panel,
// 4096 columns of the second one are widened, multiplied, and the sums rounded to their place in the result.
namespace tessera::kernels {
namespace {

constexpr int64_t kPanel = 4096;
// Products of fewer rows are bound by memory; so are those of thin matrices.
constexpr int64_t kLeastRows = 16, kLeastExtent = 128;

/// A matrix of 16-bit floats with consecutive elements along its rows or columns, that is widened by parts.
struct Widened {
  DType dtype;
  int64_t stride = 0;    ///< elements from a line of consecutive elements to the next
  bool by_rows = false;  ///< lines are rows

  static std::optional<Widened> of(DType dtype, const Dims& strides) {
    if (strides[1] == 1) return Widened{dtype, strides[0], true};
    if (strides[0] == 1) return Widened{dtype, strides[1], false};
    return std::nullopt;
  }

  /// Strides of a widened part of `rows` by `columns`.
  Dims part_strides(int64_t rows, int64_t columns) const { return by_rows ? Dims{columns, 1} : Dims{1, rows}; }

  void run(const void* matrix, int64_t row, int64_t rows, int64_t column, int64_t columns, float* target,
           int threads) const {
    const int64_t first = by_rows ? row : column, lines = by_rows ? rows : columns;
    const int64_t skip = by_rows ? column : row, length = by_rows ? columns : rows;
    const auto* elements = static_cast<const uint16_t*>(matrix) + first * stride + skip;
    for_ranges(lines, lines * length, threads, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        const uint16_t* source = elements + line * stride;
        if (dtype == DType::bfloat16)
          widen_row(reinterpret_cast<const BFloat16*>(source), target + line * length, length);
        else
          widen_row(reinterpret_cast<const Float16*>(source), target + line * length, length);
      }
    });
  }
};

enum class Cut : uint8_t { m, k, n };

Cut longest(const MatmulShape& shape) {
  if (shape.k >= std::max(shape.m, shape.n)) return Cut::k;
  return shape.m >= shape.n ? Cut::m : Cut::n;
}

class WidenedProduct : public MatrixProduct {
 public:
  WidenedProduct(const ProductSpec& spec, const Widened& a, const Widened& b)
      : m_(spec.shape.m),
        k_(spec.shape.k),
        n_(spec.shape.n),
        c_stride_(spec.shape.c_strides[0]),
        result_(spec.result),
        bias_(spec.bias),
        threads_(spec.threads),
        a_(a),
        b_(b),
        cut_(longest(spec.shape)) {
    const int64_t whole = extent(), panel = std::min(whole, kPanel);
    for (int64_t at = 0; at < whole; at += panel) panels_.push_back(make_panel(spec, at, std::min(panel, whole - at)));
    a_at_ = plan_.add(bytes_of(DType::float32, (cut_ == Cut::m ? panel : m_) * (cut_ == Cut::k ? panel : k_)));
    b_at_ = plan_.add(bytes_of(DType::float32, (cut_ == Cut::k ? panel : k_) * (cut_ == Cut::n ? panel : n_)));
    c_at_ = plan_.add(bytes_of(DType::float32, (cut_ == Cut::m ? panel : m_) * (cut_ == Cut::n ? panel : n_)));
    bias_at_ = plan_.add(is_narrow_bias() ? bytes_of(DType::float32, n_) : 0);
    size_t inner = 0;
    for (const Panel& one : panels_) inner = std::max(inner, one.product ? one.product->scratch_bytes() : 0);
    inner_at_ = plan_.add(inner);
  }

  bool is_complete() const {
    return std::all_of(panels_.begin(), panels_.end(), [](const Panel& panel) { return panel.product != nullptr; });
  }

  size_t scratch_bytes() const override { return plan_.bytes(); }

  void run(const void* a, const void* b, const void* bias, void* c, void* scratch,
           std::span<const void* const> others) override {
    auto* wide_a = scratch_at<float>(scratch, a_at_);
    auto* wide_b = scratch_at<float>(scratch, b_at_);
    auto* sums = scratch_at<float>(scratch, c_at_);
    if (is_narrow_bias()) {
      widen(bias_, bias, scratch_at<float>(scratch, bias_at_), n_, 1);
      bias = scratch_at(scratch, bias_at_);
    }
    for (const Panel& panel : panels_) {
      if (panel.at == 0 || cut_ != Cut::n) a_.run(a, panel.row, panel.m, panel.depth, panel.k, wide_a, threads_);
      if (panel.at == 0 || cut_ != Cut::m) b_.run(b, panel.depth, panel.k, panel.column, panel.n, wide_b, threads_);
      panel.product->run(wide_a, wide_b, bias, sums, scratch_at(scratch, inner_at_), others);
      if (cut_ != Cut::k || &panel == &panels_.back()) store(panel, sums, c);
    }
  }

 private:
  struct Panel {
    int64_t at, row = 0, depth = 0, column = 0, m, k, n;
    std::shared_ptr<MatrixProduct> product;
  };

  int64_t extent() const { return cut_ == Cut::m ? m_ : cut_ == Cut::k ? k_ : n_; }
  bool is_narrow_bias() const { return bias_ != DType::undefined && bias_ != DType::float32; }

  Panel make_panel(const ProductSpec& whole, int64_t at, int64_t size) {
    Panel panel{.at = at, .m = m_, .k = k_, .n = n_, .product = nullptr};
    (cut_ == Cut::m ? panel.row : cut_ == Cut::k ? panel.depth : panel.column) = at;
    (cut_ == Cut::m ? panel.m : cut_ == Cut::k ? panel.k : panel.n) = size;
    const bool adds = cut_ == Cut::k && at > 0;
    std::shared_ptr<MatrixProduct>& product = made_[{size, adds}];
    if (!product) {
      ProductSpec spec = whole;
      spec.operands = spec.result = DType::float32;
      if (spec.bias != DType::undefined) spec.bias = DType::float32;
      spec.shape.m = panel.m;
      spec.shape.k = panel.k;
      spec.shape.n = panel.n;
      spec.shape.a_strides = a_.part_strides(panel.m, panel.k);
      spec.shape.b_strides = b_.part_strides(panel.k, panel.n);
      spec.shape.c_strides = {panel.n, 1};
      if (adds) spec.then = {{.algorithm = dnnl::algorithm::binary_add, .held_by_result = true}};
      product = make_product(spec);
    }
    panel.product = product;
    return panel;
  }

  void store(const Panel& panel, const float* sums, void* c) const {
    for_ranges(panel.m, panel.m * panel.n, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = (panel.row + row) * c_stride_ + panel.column;
        const float* source = sums + row * panel.n;
        if (result_ == DType::float32)
          std::copy(source, source + panel.n, static_cast<float*>(c) + at);
        else if (result_ == DType::bfloat16)
          narrow_row(source, static_cast<BFloat16*>(c) + at, panel.n);
        else
          narrow_row(source, static_cast<Float16*>(c) + at, panel.n);
      }
    });
  }

  int64_t m_, k_, n_, c_stride_;
  DType result_, bias_;
  int threads_;
  Widened a_, b_;
  Cut cut_;
  std::map<std::pair<int64_t, bool>, std::shared_ptr<MatrixProduct>> made_;  // by size, and whether it adds
  std::vector<Panel> panels_;
  ScratchPlan plan_;
  size_t a_at_ = 0, b_at_ = 0, c_at_ = 0, bias_at_ = 0, inner_at_ = 0;
};

}  // namespace

std::unique_ptr<MatrixProduct> widened_product(const ProductSpec& spec) {
  const MatmulShape& shape = spec.shape;
  if (!onednn::is_faster_widened(spec.operands) || spec.weight || !shape.batch.empty()) return nullptr;
  if (shape.m < kLeastRows || std::min(shape.k, shape.n) < kLeastExtent) return nullptr;
  const bool several = std::max({shape.m, shape.k, shape.n}) > kPanel;
  if (several && (spec.bias != DType::undefined || !spec.then.empty())) return nullptr;
  const auto a = Widened::of(spec.operands, shape.a_strides), b = Widened::of(spec.operands, shape.b_strides);
  if (!a || !b || shape.c_strides[1] != 1) return nullptr;
  auto product = std::make_unique<WidenedProduct>(spec, *a, *b);
  return product->is_complete() ? std::move(product) : nullptr;
}

}  // namespace tessera::kernels
