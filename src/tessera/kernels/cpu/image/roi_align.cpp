#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/registry.h"

// RoiAlign: means, or the largest, of samples of regions of images.
namespace tessera::kernels {
namespace {

/// The larger of two numbers, or NaN if one of them is.
template <typename Sum>
Sum larger(Sum a, Sum b) {
  return b > a || std::isnan(b) ? b : a;
}

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

/// The most samples of one result along one dimension: more than any image has pixels for.
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
        for (int64_t at = begin; at < end; ++at) {
          const int64_t r = at / channels;
          const auto corner = [&](int64_t i) { return load(rois[4 * r + i]) * scale - (half ? Sum(0.5) : Sum(0)); };
          const Sum left = corner(0), top = corner(1), wide = corner(2) - left, high = corner(3) - top;
          const RegionSamples<Sum> samples{{top, half ? high : std::max(high, Sum(1)), rows, ratio, height},
                                           {left, half ? wide : std::max(wide, Sum(1)), columns, ratio, width},
                                           width};
          const T* plane = in + (which[r] * channels + at % channels) * height * width;
          const int64_t count = samples.each();
          const Sum share = 1 / static_cast<Sum>(std::max<int64_t>(count, 1));
          for (int64_t bin = 0; bin < bins; ++bin) {
            double sum = 0;  // of up to millions of samples
            Sum most = count > 0 ? -std::numeric_limits<Sum>::infinity() : Sum(0);
            samples.visit(
                bin / columns, bin % columns,
                [&](int64_t pixel, Sum weight) {
                  const Sum element = load(plane[pixel]);
                  sum += static_cast<double>(weight * share * element);
                  most = larger(most, weight * element);
                },
                [&] { most = larger(most, Sum(0)); });
            out[at * bins + bin] = store<T>(largest ? most : static_cast<Sum>(sum));
          }
        }
      });
    });
  });
}

}  // namespace

std::vector<KernelEntry> roi_align_kernels() {
  return {{"RoiAlign", "", prepare_roi_align, {}}};
}

}  // namespace tessera::kernels
