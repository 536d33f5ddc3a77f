#pragma once

#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// The windows of a convolution or pooling, per spatial dimension, in elements.
struct WindowGeometry {
  Dims kernel, strides, dilations, pads_begin, pads_end;

  size_t rank() const { return kernel.size(); }
  /// Elements that a window spans along a dimension.
  int64_t span(size_t dim) const { return (kernel[dim] - 1) * dilations[dim] + 1; }
};

/// Reads strides, dilations, pads and auto_pad of a Conv or pooling node. `spatial`: the input's extents (they matter
/// to auto_pad SAME only); `kernel`: the window's. A user error naming the node if an attribute has the wrong length.
WindowGeometry window_geometry(const Node& node, const Dims& spatial, const Dims& kernel);

}  // namespace tessera::kernels
