#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/product/matrix_product.h"
#include "tessera/kernels/registry.h"

// DeformConv: a convolution whose windows read an image between its pixels.
namespace tessera::kernels {
namespace {

/// The four pixels around a place of an image, and their weights; none where it is outside.
struct Corners {
  std::array<int64_t, 4> pixels{};
  std::array<double, 4> weights{};

  Corners(double y, double x, int64_t height, int64_t width) {
    const double top = std::floor(y), left = std::floor(x), dy = y - top, dx = x - left;
    for (int k = 0; k < 4; ++k) {
      const double row = top + k / 2, column = left + k % 2;
      const bool inside =
          row >= 0 && row < static_cast<double>(height) && column >= 0 && column < static_cast<double>(width);
      pixels[static_cast<size_t>(k)] = inside ? static_cast<int64_t>(row) * width + static_cast<int64_t>(column) : 0;
      weights[static_cast<size_t>(k)] = inside ? (k / 2 ? dy : 1 - dy) * (k % 2 ? dx : 1 - dx) : 0;
    }
  }
};

/// The windows of some rows of one image's results as columns, [channels · window, rows · columns], which a product
/// then reads: each sample is taken once, and its place once for all channels that share offsets.
struct DeformedWindows {
  int64_t height = 0, width = 0, rows = 0, columns = 0;  ///< of the image, and of the results
  int64_t window_rows = 0, window_columns = 0;
  int64_t strides[2] = {1, 1}, dilations[2] = {1, 1}, pads[2] = {0, 0};
  int64_t channels_per_offset = 1;

  int64_t points() const { return rows * columns; }
  int64_t window() const { return window_rows * window_columns; }

  /// Channels [first, first + count) for the results' rows from `row_begin` to `row_end`. `image`, `offset` and `mask`
  /// (null: none) are those of one image.
  template <typename T>
  void write(const T* image, const T* offset, const T* mask, int64_t first, int64_t count, int64_t row_begin,
             int64_t row_end, Compute<T>* to, int threads) const {
    const int64_t lines = row_end - row_begin;
    const int64_t before = first / channels_per_offset, groups = (first + count - 1) / channels_per_offset - before + 1;
    for_ranges(groups * window() * lines, count * window() * lines * columns * 4, threads,
               [&](int64_t begin, int64_t end) {
                 for (int64_t at = begin; at < end; ++at) {
                   const int64_t group = before + at / lines / window(), k = at / lines % window(), line = at % lines;
                   const int64_t from = std::max(first, group * channels_per_offset);
                   const int64_t until = std::min(first + count, (group + 1) * channels_per_offset);
                   const int64_t entry = group * window() + k, row = row_begin + line;
                   for (int64_t column = 0; column < columns; ++column) {
                     const int64_t point = row * columns + column;
                     const auto place = [&](int64_t index, int64_t of_window, int d) {
                       const T moved = offset[(entry * 2 + d) * points() + point];
                       return static_cast<double>(index * strides[d] - pads[d] + of_window * dilations[d]) +
                              static_cast<double>(load(moved));
                     };
                     const Corners corners(place(row, k / window_columns, 0), place(column, k % window_columns, 1),
                                           height, width);
                     const double factor = mask ? static_cast<double>(load(mask[entry * points() + point])) : 1;
                     for (int64_t c = from; c < until; ++c) {
                       Compute<T> sum = 0;
                       for (size_t i = 0; i < 4; ++i)
                         if (corners.weights[i] != 0)
                           sum += static_cast<Compute<T>>(corners.weights[i] * factor) *
                                  load(image[c * height * width + corners.pixels[i]]);
                       to[(((c - first) * window() + k) * lines + line) * columns + column] = sum;
                     }
                   }
                 }
               });
  }
};

std::unique_ptr<Kernel> prepare_deformable(const PrepareContext& context) {
  const Node& node = context.node;
  const TensorDesc &x = context.inputs[0], &w = context.inputs[1], &y = context.outputs[0];
  const auto strides = node.get_ints("strides", {1, 1}), dilations = node.get_ints("dilations", {1, 1});
  const auto pads = node.get_ints("pads", {0, 0, 0, 0});
  const int64_t groups = node.get_int("group", 1), offset_groups = node.get_int("offset_group", 1);
  const int64_t batch = y.dims[0], out_channels = y.dims[1], channels = x.dims[1], own = w.dims[1];
  if (strides.size() != 2 || dilations.size() != 2 || pads.size() != 4 || groups < 1 || offset_groups < 1 ||
      own * groups != channels || channels % offset_groups != 0 || out_channels % groups != 0)
    fail("kernel", "{}: its windows or groups do not fit {} channels", node.label(), channels);
  DeformedWindows windows{.height = x.dims[2],
                          .width = x.dims[3],
                          .rows = y.dims[2],
                          .columns = y.dims[3],
                          .window_rows = w.dims[2],
                          .window_columns = w.dims[3],
                          .strides = {strides[0], strides[1]},
                          .dilations = {dilations[0], dilations[1]},
                          .pads = {pads[0], pads[1]},
                          .channels_per_offset = channels / offset_groups};
  const bool has_bias = context.has_input(3), has_mask = context.has_input(4);
  return dispatch(FloatTypes(), node, x.dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    using Sum = Compute<T>;
    constexpr size_t kTileBytes = 8 << 20;  // of columns
    const int64_t inner = own * windows.window(), results = out_channels / groups, points = windows.points();
    const bool is_empty = batch == 0 || points == 0 || results == 0 || inner == 0;
    const size_t line = std::max<size_t>(checked_bytes({sizeof(Sum), inner, windows.columns}, node.label()), 1);
    const int64_t tile = is_empty ? 1 : std::clamp<int64_t>(static_cast<int64_t>(kTileBytes / line), 1, windows.rows);
    const auto product_of = [&](int64_t lines) -> std::shared_ptr<MatrixProduct> {
      if (is_empty || lines == 0) return nullptr;
      ProductSpec spec;
      spec.shape = gemm_shape(View::dense({results, inner}), View::dense({inner, lines * windows.columns}), false,
                              false, node.label());
      spec.operands = spec.result = dtype_of<Sum>();
      spec.threads = context.threads;
      spec.label = node.label();
      return make_product(spec);
    };
    const auto product = product_of(tile), last = product_of(is_empty ? 0 : windows.rows % tile);
    ScratchPlan plan;
    const size_t columns_at = plan.add(line * static_cast<size_t>(tile));
    const size_t sums_at = plan.add(checked_bytes({sizeof(Sum), results, tile, windows.columns}, node.label()));
    const size_t weight_at = plan.add(is_narrow_float<T> ? checked_bytes({sizeof(Sum), w.count()}, node.label()) : 0);
    const size_t inner_at =
        plan.add(std::max(product ? product->scratch_bytes() : size_t{0}, last ? last->scratch_bytes() : size_t{0}));
    return make_kernel(
        [=, threads = context.threads, weights = w.count()](const KernelArgs& args) {
          const T* bias = has_bias ? args.in<T>(3) : nullptr;
          const T* mask = has_mask ? args.in<T>(4) : nullptr;
          Sum *columns = scratch_at<Sum>(args.scratch, columns_at), *sums = scratch_at<Sum>(args.scratch, sums_at);
          const Sum* weight = nullptr;
          if constexpr (is_narrow_float<T>) {
            Sum* wide = scratch_at<Sum>(args.scratch, weight_at);
            for (int64_t i = 0; i < weights; ++i) wide[i] = load(args.in<T>(1)[i]);
            weight = wide;
          } else {
            weight = args.in<T>(1);
          }
          const int64_t entries = offset_groups * windows.window() * points;
          for (int64_t task = 0; task < batch * groups; ++task)
            for (int64_t row = 0; row < windows.rows; row += tile) {
              const int64_t n = task / groups, g = task % groups, end = std::min(windows.rows, row + tile);
              const int64_t count = (end - row) * windows.columns;
              if (is_empty) {
                std::fill_n(sums, results * count, Sum(0));
              } else {
                windows.template write<T>(args.in<T>(0) + n * channels * windows.height * windows.width,
                                          args.in<T>(2) + n * 2 * entries, mask ? mask + n * entries : nullptr, g * own,
                                          own, row, end, columns, threads);
                (end - row == tile ? product : last)
                    ->run(weight + g * results * inner, columns, nullptr, sums, scratch_at(args.scratch, inner_at));
              }
              T* out = args.out<T>() + (n * out_channels + g * results) * points + row * windows.columns;
              for (int64_t m = 0; m < results; ++m) {
                const Sum added = bias ? load(bias[g * results + m]) : Sum(0);
                for (int64_t p = 0; p < count; ++p) out[m * points + p] = store<T>(sums[m * count + p] + added);
              }
            }
        },
        plan.bytes());
  });
}

}  // namespace

std::vector<KernelEntry> deform_conv_kernels() {
  return {{"DeformConv", "", prepare_deformable, {}}};
}

}  // namespace tessera::kernels
