#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/registry.h"

// GridSample: an image read at the places of a grid.
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

/// The pixels around a point in all dimensions, as many as its axes have together, and their weights. One without
/// weight does not count, whatever it holds.
template <typename Sum>
struct GridPoint {
  std::array<int64_t, 16> pixels{};
  std::array<Sum, 16> weights{};
  size_t count = 0;

  GridPoint(const std::array<GridTaps, kMostDims>& taps, const std::array<GridAxis, kMostDims>& axes, size_t dims) {
    std::array<int, kMostDims> k{};
    for (;;) {
      double weight = 1;
      int64_t offset = 0;
      for (size_t d = 0; d < dims; ++d) {
        weight *= taps[d].weights[static_cast<size_t>(k[d])];
        offset = offset * axes[d].extent + taps[d].pixels[static_cast<size_t>(k[d])];
      }
      if (weight != 0) {
        pixels[count] = offset;
        weights[count++] = static_cast<Sum>(weight);
      }
      size_t d = dims;
      while (d > 0 && ++k[d - 1] == taps[d - 1].count) k[--d] = 0;
      if (d == 0) break;
    }
  }
};

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
        using Sum = Compute<T>;
        for_ranges(images * points, images * points * channels * 4, threads, [&](int64_t begin, int64_t end) {
          for (int64_t at = begin; at < end; ++at) {
            std::array<GridTaps, kMostDims> taps;
            // The grid gives the last dimension's coordinate first.
            for (size_t d = 0; d < dims; ++d)
              taps[d] = GridTaps(
                  axes[d], static_cast<double>(
                               load(places[at * static_cast<int64_t>(dims) + static_cast<int64_t>(dims - 1 - d)])));
            const GridPoint<Sum> point(taps, axes, dims);
            for (int64_t c = 0; c < channels; ++c) {
              const int64_t of_image = at / points * channels + c;
              const T* from = in + of_image * plane;
              Sum sum = 0;
              for (size_t k = 0; k < point.count; ++k) sum += point.weights[k] * load(from[point.pixels[k]]);
              out[of_image * points + at % points] = store<T>(sum);
            }
          }
        });
      });
    });
  });
}

}  // namespace

std::vector<KernelEntry> grid_sample_kernels() {
  return {{"GridSample", "", prepare_grid_sample, {}}};
}

}  // namespace tessera::kernels
