#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "tessera/kernels/cpu/matrix_product.h"
#include "tessera/kernels/cpu/parallel.h"
#include "tessera/kernels/cpu/scratch.h"
#include "tessera/kernels/registry.h"

// Operators that read images between their pixels: GridSample, RoiAlign, DeformConv; and Det.
namespace tessera::kernels {
namespace {

constexpr size_t kMostDims = 3;

enum class GridMode { nearest, linear, cubic };
enum class GridPadding { zeros, border, reflection };

/// One coordinate of a grid, and the pixels beside it.
struct GridAxis {
  int64_t extent = 1;
  bool corners = false;
  GridMode mode = GridMode::linear;
  GridPadding padding = GridPadding::zeros;

  // From [-1, 1] to pixels; what lies outside goes to the border, or is mirrored there.
  double place(double coordinate) const {
    const auto n = static_cast<double>(extent);
    double x = corners ? (coordinate + 1) / 2 * (n - 1) : ((coordinate + 1) * n - 1) / 2;
    if (mode == GridMode::nearest) x = std::nearbyint(x);
    if (!std::isfinite(x)) return padding == GridPadding::zeros ? -2 * n - 2 : 0;
    const double least = corners ? 0 : -0.5, most = corners ? n - 1 : n - 0.5;
    if (x >= least && x <= most) return x;
    if (padding == GridPadding::border) return std::clamp(x, 0.0, n - 1);
    return padding == GridPadding::reflection ? mirrored(x, least, most) : x;
  }

  // The pixel at an index; -1 where there is none.
  int64_t pixel(double index) const {
    const auto n = static_cast<double>(extent);
    if (index >= 0 && index < n) return static_cast<int64_t>(index);
    if (padding == GridPadding::zeros) return -1;
    if (padding == GridPadding::border) return index < 0 ? 0 : extent - 1;
    const double inside = mirrored(index, corners ? 0 : -0.5, corners ? n - 1 : n - 0.5);
    return std::clamp<int64_t>(static_cast<int64_t>(inside), 0, extent - 1);
  }

 private:
  static double mirrored(double x, double least, double most) {
    const double range = most - least;
    if (range <= 0) return least;
    const double beyond = x < least ? least - x : x - most;
    if (x >= least && x <= most) return x;
    const double rest = std::fmod(beyond, range);
    const bool from_least = (x < least) == (std::fmod(beyond, 2 * range) < range);
    return from_least ? least + rest : most - rest;
  }
};

/// Up to four pixels and their weights.
struct GridTaps {
  std::array<int64_t, 4> pixels{};
  std::array<double, 4> weights{};
  int count = 0;

  GridTaps() = default;
  GridTaps(const GridAxis& axis, double coordinate) {
    const double x = axis.place(coordinate);
    if (axis.mode == GridMode::nearest) {
      add(axis.pixel(x), 1);
      return;
    }
    const double below = std::floor(x), t = x - below;
    if (axis.mode == GridMode::linear) {
      add(axis.pixel(below), 1 - t);
      add(axis.pixel(below + 1), t);
      return;
    }
    for (int k = -1; k <= 2; ++k) add(axis.pixel(below + k), cubic(t - k));
  }

 private:
  void add(int64_t pixel, double weight) {
    pixels[static_cast<size_t>(count)] = pixel;
    weights[static_cast<size_t>(count++)] = pixel < 0 ? 0 : weight;
  }
  // Keys' convolution kernel with a = -0.75.
  static double cubic(double x) {
    constexpr double a = -0.75;
    x = std::abs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
  }
};

/// The larger of two numbers, or NaN if one of them is.
template <typename Sum>
Sum larger(Sum a, Sum b) {
  return b > a || std::isnan(b) ? b : a;
}

/// The pixels around some places of an image, and their weights, which all channels share. Its arrays lie on the stack
/// and fit the first-level cache.
template <typename Sum>
class SamplePlaces {
 public:
  static constexpr int64_t kMost = 64;          ///< places
  static constexpr int64_t kMostPixels = 1024;  ///< of all places together: 16 for each of 64

  void clear() {
    count_ = 0;
    pixel_count_ = 0;
    zeros_.fill(false);
  }
  bool is_full() const { return pixel_count_ == kMostPixels; }
  /// Adds a pixel to the next place.
  void add(int64_t pixel, double weight) {
    pixels_[pixel_count_] = pixel;
    weights_[pixel_count_++] = static_cast<Sum>(weight);
  }
  /// The next place has a sample without pixels, which is 0.
  void add_zero() { zeros_[static_cast<size_t>(count_)] = true; }
  void end_place() { ends_[static_cast<size_t>(count_++)] = pixel_count_; }

  /// What the places have in one channel: the sum of their pixels, each times its weight.
  template <typename T, typename Write>
  void sample(const T* plane, Write&& write) const {
    size_t k = 0;
    for (int64_t p = 0; p < count_; ++p) {
      Sum sum = 0;
      for (const size_t end = ends_[static_cast<size_t>(p)]; k < end; ++k) sum += weights_[k] * load(plane[pixels_[k]]);
      write(p, sum);
    }
  }

  /// The largest of these products instead, and of 0 if a sample has no pixels; 0 for a place without samples.
  template <typename T, typename Write>
  void largest(const T* plane, Write&& write) const {
    size_t k = 0;
    for (int64_t p = 0; p < count_; ++p) {
      const size_t end = ends_[static_cast<size_t>(p)];
      Sum most = k < end && !zeros_[static_cast<size_t>(p)] ? -std::numeric_limits<Sum>::infinity() : Sum(0);
      for (; k < end; ++k) most = larger(most, weights_[k] * load(plane[pixels_[k]]));
      write(p, most);
    }
  }

 private:
  int64_t count_ = 0;
  size_t pixel_count_ = 0;
  std::array<size_t, kMost> ends_{};
  std::array<bool, kMost> zeros_{};
  std::array<int64_t, kMostPixels> pixels_;
  std::array<Sum, kMostPixels> weights_;
};

/// Adds the pixels around a point in all dimensions: as many as its axes have together. One without weight does not
/// count, whatever it holds.
template <typename Sum>
void add_point(SamplePlaces<Sum>& places, const std::array<GridTaps, kMostDims>& taps,
               const std::array<GridAxis, kMostDims>& axes, size_t dims) {
  std::array<int, kMostDims> k{};
  for (;;) {
    double weight = 1;
    int64_t offset = 0;
    for (size_t d = 0; d < dims; ++d) {
      weight *= taps[d].weights[static_cast<size_t>(k[d])];
      offset = offset * axes[d].extent + taps[d].pixels[static_cast<size_t>(k[d])];
    }
    if (weight != 0) places.add(offset, weight);
    size_t d = dims;
    while (d > 0 && ++k[d - 1] == taps[d - 1].count) k[--d] = 0;
    if (d == 0) break;
  }
  places.end_place();
}

std::unique_ptr<Kernel> prepare_grid_sample(const PrepareContext& context) {
  const Node& node = context.node;
  const TensorDesc &x = context.inputs[0], &grid = context.inputs[1], &y = context.outputs[0];
  const std::string mode = node.get_string("mode", "linear"), padding = node.get_string("padding_mode", "zeros");
  GridAxis axis;
  axis.corners = node.get_int("align_corners", 0) != 0;
  axis.mode = mode == "nearest" ? GridMode::nearest : mode == "cubic" ? GridMode::cubic : GridMode::linear;
  axis.padding = padding == "border"       ? GridPadding::border
                 : padding == "reflection" ? GridPadding::reflection
                                           : GridPadding::zeros;
  const size_t dims = x.dims.size() - 2;
  if (dims > kMostDims || (mode != "nearest" && mode != "cubic" && mode != "linear") ||
      (padding != "border" && padding != "reflection" && padding != "zeros") || (mode == "cubic" && dims != 2))
    fail("kernel",
         "{}: mode '{}' with padding '{}' in {} dimensions is not supported; use nearest or linear in at most "
         "3 dimensions, or cubic in 2",
         node.label(), mode, padding, dims);
  std::array<GridAxis, kMostDims> axes;
  int64_t plane = 1, points = 1;
  for (size_t d = 0; d < dims; ++d) {
    axes[d] = axis;
    axes[d].extent = x.dims[d + 2];
    plane *= x.dims[d + 2];
    points *= y.dims[d + 2];
  }
  if (plane == 0 && y.count() > 0) fail("kernel", "{}: there are no pixels to read", node.label());
  const int64_t images = y.dims[0], channels = y.dims[1];
  return dispatch(FloatTypes(), node, x.dtype, [&]<typename T>() {
    return dispatch(FloatTypes(), node, grid.dtype, [&]<typename G>() -> std::unique_ptr<Kernel> {
      return make_kernel([=, threads = context.threads](const KernelArgs& args) {
        const T* in = args.in<T>(0);
        const G* places = args.in<G>(1);
        T* out = args.out<T>();
        if (channels == 0) return;
        using Sum = Compute<T>;
        for_ranges(images * points, images * points * channels * 4, threads, [&](int64_t begin, int64_t end) {
          SamplePlaces<Sum> block;
          for (int64_t at = begin; at < end;) {
            const int64_t image = at / points, first = at % points;
            const int64_t count = std::min({SamplePlaces<Sum>::kMost, points - first, end - at});
            block.clear();
            for (int64_t p = at; p < at + count; ++p) {
              std::array<GridTaps, kMostDims> taps;
              // The grid gives the last dimension's coordinate first.
              for (size_t d = 0; d < dims; ++d)
                taps[d] = GridTaps(
                    axes[d], static_cast<double>(
                                 load(places[p * static_cast<int64_t>(dims) + static_cast<int64_t>(dims - 1 - d)])));
              add_point(block, taps, axes, dims);
            }
            for (int64_t c = 0; c < channels; ++c) {
              T* to = out + (image * channels + c) * points + first;
              block.sample(in + (image * channels + c) * plane, [&](int64_t p, Sum sum) { to[p] = store<T>(sum); });
            }
            at += count;
          }
        });
      });
    });
  });
}

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

/// A sample of a region along one dimension: the pixels below and above, and their weights.
template <typename Sum>
struct RegionTap {
  int64_t pixels[2] = {0, 0};
  Sum weights[2] = {0, 0};
  bool outside = false;

  RegionTap(Sum place, int64_t extent) {
    outside = place < -1 || place > static_cast<Sum>(extent);
    place = std::isnan(place) ? 0 : std::clamp(place, Sum(0), static_cast<Sum>(extent - 1));
    pixels[0] = std::min(static_cast<int64_t>(place), extent - 1);
    pixels[1] = std::min(pixels[0] + 1, extent - 1);
    weights[1] = place - static_cast<Sum>(pixels[0]);
    weights[0] = 1 - weights[1];
  }
};

/// Of one result along one dimension: more than any image has pixels for.
constexpr int64_t kMostSamples = 1 << 12;

/// The samples of a region along one dimension, `each` for each result. Places are computed in the type of sums, as
/// other engines do, since the number of samples depends on the last bit.
template <typename Sum>
class RegionTaps {
 public:
  /// As many samples as `ratio` says, or as there are pixels in one of `bins` results.
  RegionTaps(Sum begin, Sum length, int64_t bins, int64_t ratio, int64_t extent)
      : begin_(begin), bin_(length / static_cast<Sum>(bins)), extent_(extent) {
    each = ratio;
    if (ratio <= 0)
      each = static_cast<int64_t>(std::isnan(bin_) ? 0 : std::clamp(std::ceil(bin_), Sum(0), Sum(kMostSamples)));
  }

  int64_t each = 0;

  RegionTap<Sum> at(int64_t bin, int64_t sample) const {
    return {
        begin_ + static_cast<Sum>(bin) * bin_ + (static_cast<Sum>(sample) + Sum(0.5)) * bin_ / static_cast<Sum>(each),
        extent_};
  }

 private:
  Sum begin_, bin_;
  int64_t extent_;
};

/// A region's samples in both dimensions.
template <typename Sum>
struct RegionSamples {
  RegionTaps<Sum> down, across;
  int64_t width = 1;

  int64_t each() const { return down.each * across.each; }

  /// Calls inside(pixel, weight) for the four pixels of each sample of a result; outside() for one outside the image.
  template <typename Inside, typename Outside>
  void visit(int64_t row, int64_t column, Inside&& inside, Outside&& outside) const {
    for (int64_t i = 0; i < down.each; ++i) {
      const RegionTap<Sum> y = down.at(row, i);
      for (int64_t j = 0; j < across.each; ++j) {
        const RegionTap<Sum> x = across.at(column, j);
        if (y.outside || x.outside)
          outside();
        else
          for (int k = 0; k < 4; ++k)
            inside(y.pixels[k / 2] * width + x.pixels[k % 2], y.weights[k / 2] * x.weights[k % 2]);
      }
    }
  }
};

/// What some channels have for one result with more samples than are listed at once.
template <typename T, typename Sum>
class LargeRegion {
 public:
  static constexpr int64_t kMostChannels = 64;

  /// Calls write(c, result) for channels [first, last), at most kMostChannels, whose planes are at plane(c).
  template <typename Plane, typename Write>
  void compute(const RegionSamples<Sum>& samples, int64_t row, int64_t column, bool largest, Sum share, int64_t first,
               int64_t last, const Plane& plane, Write&& write) {
    results_.fill(largest ? -std::numeric_limits<Sum>::infinity() : Sum(0));
    const auto add_listed = [&] {
      block_.end_place();
      for (int64_t c = first; c < last; ++c) {
        Sum& result = results_[static_cast<size_t>(c - first)];
        if (largest)
          block_.largest(plane(c), [&](int64_t, Sum most) { result = larger(result, most); });
        else
          block_.sample(plane(c), [&](int64_t, Sum sum) { result += sum; });
      }
      block_.clear();
    };
    block_.clear();
    samples.visit(
        row, column,
        [&](int64_t pixel, Sum weight) {
          if (block_.is_full()) add_listed();
          block_.add(pixel, weight * share);
        },
        [&] { block_.add_zero(); });
    add_listed();
    for (int64_t c = first; c < last; ++c) write(c, results_[static_cast<size_t>(c - first)]);
  }

 private:
  SamplePlaces<Sum> block_;
  std::array<Sum, kMostChannels> results_;
};

std::unique_ptr<Kernel> prepare_roi_align(const PrepareContext& context) {
  const Node& node = context.node;
  const TensorDesc &x = context.inputs[0], &y = context.outputs[0];
  const std::string mode = node.get_string("mode", "avg"),
                    how = node.get_string("coordinate_transformation_mode", "half_pixel");
  if ((mode != "avg" && mode != "max") || (how != "half_pixel" && how != "output_half_pixel"))
    fail("kernel", "{}: mode '{}' with '{}' is not supported; use avg or max, half_pixel or output_half_pixel",
         node.label(), mode, how);
  const bool largest = mode == "max", half = how == "half_pixel";
  const float spatial_scale = node.get_float("spatial_scale", 1);
  const int64_t ratio = node.get_int("sampling_ratio", 0);
  if (ratio > kMostSamples)
    fail("kernel", "{}: sampling_ratio {} is not supported; use 0, for as many samples as pixels, to {}", node.label(),
         ratio, kMostSamples);
  const int64_t images = x.dims[0], height = x.dims[2], width = x.dims[3];
  const int64_t regions = y.dims[0], channels = y.dims[1], rows = y.dims[2], columns = y.dims[3];
  if (height * width == 0 && y.count() > 0) fail("kernel", "{}: there are no pixels to read", node.label());
  return dispatch(FloatTypes(), node, x.dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    using Sum = Compute<T>;
    return make_kernel([=, threads = context.threads](const KernelArgs& args) {
      const Sum scale = spatial_scale;
      const T *in = args.in<T>(0), *rois = args.in<T>(1);
      const int64_t* which = args.in<int64_t>(2);
      T* out = args.out<T>();
      for (int64_t r = 0; r < regions; ++r)
        if (which[r] < 0 || which[r] >= images)
          fail("run", "RoiAlign: region {} is of image {}, but there are {}", r, which[r], images);
      const int64_t work = regions * channels * rows * columns * 16, bins = rows * columns;
      for_ranges(regions * channels, work, threads, [&](int64_t begin, int64_t end) {
        using Block = SamplePlaces<Sum>;
        Block block;
        for (int64_t at = begin; at < end;) {
          const int64_t r = at / channels, first = at % channels, last = std::min(channels, first + end - at);
          const auto corner = [&](int64_t i) { return load(rois[4 * r + i]) * scale - (half ? Sum(0.5) : Sum(0)); };
          const Sum left = corner(0), top = corner(1), wide = corner(2) - left, high = corner(3) - top;
          const RegionSamples<Sum> samples{{top, half ? high : std::max(high, Sum(1)), rows, ratio, height},
                                           {left, half ? wide : std::max(wide, Sum(1)), columns, ratio, width},
                                           width};
          const T* image = in + which[r] * channels * height * width;
          const auto to = [&](int64_t c) { return out + (r * channels + c) * bins; };
          const auto plane = [&](int64_t c) { return image + c * height * width; };
          const Sum share = largest ? Sum(1) : 1 / static_cast<Sum>(std::max<int64_t>(samples.each(), 1));
          const int64_t listed = std::min(Block::kMost, Block::kMostPixels / std::max<int64_t>(4 * samples.each(), 1));
          for (int64_t bin = 0; bin < bins; bin += std::max<int64_t>(listed, 1)) {
            if (listed == 0) {
              for (int64_t c = first; c < last; c += LargeRegion<T, Sum>::kMostChannels)
                LargeRegion<T, Sum>().compute(samples, bin / columns, bin % columns, largest, share, c,
                                              std::min(last, c + LargeRegion<T, Sum>::kMostChannels), plane,
                                              [&](int64_t channel, Sum sum) { to(channel)[bin] = store<T>(sum); });
              continue;
            }
            block.clear();
            for (int64_t b = bin; b < std::min(bins, bin + listed); ++b) {
              samples.visit(
                  b / columns, b % columns, [&](int64_t pixel, Sum weight) { block.add(pixel, weight * share); },
                  [&] { block.add_zero(); });
              block.end_place();
            }
            for (int64_t c = first; c < last; ++c) {
              const auto write = [&](int64_t b, Sum sum) { to(c)[bin + b] = store<T>(sum); };
              if (largest)
                block.largest(plane(c), write);
              else
                block.sample(plane(c), write);
            }
          }
          at += last - first;
        }
      });
    });
  });
}

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
    using Block = SamplePlaces<Compute<T>>;
    for_ranges(groups * window() * lines, count * window() * lines * columns * 4, threads,
               [&](int64_t begin, int64_t end) {
                 Block block;
                 for (int64_t at = begin; at < end; ++at) {
                   const int64_t group = before + at / lines / window(), k = at / lines % window(), line = at % lines;
                   const int64_t row = row_begin + line;
                   const int64_t from = std::max(first, group * channels_per_offset);
                   const int64_t until = std::min(first + count, (group + 1) * channels_per_offset);
                   const int64_t entry = group * window() + k;
                   for (int64_t first_column = 0; first_column < columns; first_column += Block::kMost) {
                     const int64_t last = std::min(columns, first_column + Block::kMost);
                     block.clear();
                     for (int64_t column = first_column; column < last; ++column) {
                       const int64_t point = row * columns + column;
                       const auto moved = [&](int64_t which) {
                         return static_cast<double>(load(offset[(entry * 2 + which) * points() + point]));
                       };
                       const auto place = [&](int64_t index, int64_t of_window, int d) {
                         return static_cast<double>(index * strides[d] - pads[d] + of_window * dilations[d]) + moved(d);
                       };
                       const Corners corners(place(row, k / window_columns, 0), place(column, k % window_columns, 1),
                                             height, width);
                       const double factor = mask ? static_cast<double>(load(mask[entry * points() + point])) : 1;
                       for (size_t i = 0; i < 4; ++i)
                         if (corners.weights[i] != 0) block.add(corners.pixels[i], corners.weights[i] * factor);
                       block.end_place();
                     }
                     for (int64_t c = from; c < until; ++c) {
                       Compute<T>* out = to + (((c - first) * window() + k) * lines + line) * columns + first_column;
                       block.sample(image + c * height * width, [&](int64_t p, Compute<T> sum) { out[p] = sum; });
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

// By elimination with the largest pivot of each column.
std::unique_ptr<Kernel> prepare_determinant(const PrepareContext& context) {
  const TensorDesc& x = context.inputs[0];
  const int64_t n = x.dims.back(), count = context.outputs[0].count();
  return dispatch(FloatTypes(), context.node, x.dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel(
        [=](const KernelArgs& args) {
          auto* a = static_cast<double*>(args.scratch);
          for (int64_t m = 0; m < count; ++m) {
            const T* in = args.in<T>(0) + m * n * n;
            for (int64_t i = 0; i < n * n; ++i) a[i] = static_cast<double>(load(in[i]));
            double product = 1;
            for (int64_t c = 0; c < n; ++c) {
              int64_t pivot = c;
              for (int64_t r = c + 1; r < n; ++r)
                if (std::abs(a[r * n + c]) > std::abs(a[pivot * n + c])) pivot = r;
              if (pivot != c) {
                std::swap_ranges(a + c * n, a + (c + 1) * n, a + pivot * n);
                product = -product;
              }
              product *= a[c * n + c];
              if (a[c * n + c] == 0) break;
              for (int64_t r = c + 1; r < n; ++r) {
                const double factor = a[r * n + c] / a[c * n + c];
                for (int64_t i = c; i < n; ++i) a[r * n + i] -= factor * a[c * n + i];
              }
            }
            args.out<T>()[m] = store<T>(static_cast<Compute<T>>(product));
          }
        },
        bytes_of(DType::float64, n * n));
  });
}

}  // namespace

std::vector<KernelEntry> sampling_kernels() {
  return {
      {"GridSample", "", prepare_grid_sample, {}},
      {"RoiAlign", "", prepare_roi_align, {}},
      {"DeformConv", "", prepare_deformable, {}},
      {"Det", "", prepare_determinant, {}},
  };
}

}  // namespace tessera::kernels
