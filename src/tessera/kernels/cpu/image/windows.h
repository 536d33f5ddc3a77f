#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// The windows of a convolution or pooling, per spatial dimension, in elements.
struct WindowGeometry {
  Dims kernel, strides, dilations, pads_begin, pads_end;

  size_t rank() const { return kernel.size(); }
  /// Elements that a window spans along a dimension.
  int64_t span(size_t dim) const { return (kernel[dim] - 1) * dilations[dim] + 1; }
};

/// Reads strides, dilations, pads and auto_pad of a Conv or pooling node. `spatial`: the input's extents (only auto_pad
/// SAME uses them); `kernel`: the window's. A user error naming the node if an attribute has the wrong length.
WindowGeometry window_geometry(const Node& node, const Dims& spatial, const Dims& kernel);

/// A window's part along one dimension that lies inside the input: kernel positions [begin, end), the first of which
/// reads input element `first`.
struct WindowRange {
  int64_t begin, end, first;
};

/// The same geometry for loops: three spatial dimensions, with leading ones of extent 1 if there are fewer.
struct SpatialLoop {
  std::array<int64_t, 3> in{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad{},
      pad_end{};

  int64_t in_count() const { return in[0] * in[1] * in[2]; }
  int64_t out_count() const { return out[0] * out[1] * out[2]; }
  int64_t kernel_count() const { return kernel[0] * kernel[1] * kernel[2]; }
  WindowRange range(int dim, int64_t position) const {
    const int64_t start = position * stride[dim] - pad[dim], step = dilation[dim];
    const int64_t begin = start >= 0 ? 0 : (-start + step - 1) / step;
    const int64_t end = start >= in[dim] ? 0 : std::min(kernel[dim], (in[dim] - 1 - start) / step + 1);
    return {begin, std::max(begin, end), start + begin * step};
  }
  /// Positions begin … end - 1 have windows that lie inside the image.
  struct Positions {
    int64_t begin = 0, end = 0;
    bool has(int64_t position) const { return position >= begin && position < end; }
  };
  Positions inside(int dim) const {
    const int64_t room =
        in[dim] - 1 - (kernel[dim] - 1) * dilation[dim] + pad[dim];  // for the last one's first element
    return {(std::max<int64_t>(pad[dim], 0) + stride[dim] - 1) / stride[dim], room < 0 ? 0 : room / stride[dim] + 1};
  }
  /// Calls visit(tap, element) for what a window of these ranges has inside the image: numbers in the kernel, and in
  /// the image.
  template <typename Visit>
  void for_taps(const WindowRange& r0, const WindowRange& r1, const WindowRange& r2, Visit visit) const {
    for (int64_t k0 = r0.begin, at0 = r0.first; k0 < r0.end; ++k0, at0 += dilation[0])
      for (int64_t k1 = r1.begin, at1 = r1.first; k1 < r1.end; ++k1, at1 += dilation[1])
        for (int64_t k2 = r2.begin, at2 = r2.first; k2 < r2.end; ++k2, at2 += dilation[2])
          visit((k0 * kernel[1] + k1) * kernel[2] + k2, (at0 * in[1] + at1) * in[2] + at2);
  }
};

/// `in` and `out` are the spatial extents. A user error naming the node if there are more than three.
SpatialLoop spatial_loop(const Node& node, const WindowGeometry& windows, std::span<const int64_t> in,
                         std::span<const int64_t> out);

}  // namespace tessera::kernels
