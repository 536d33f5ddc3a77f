#pragma once

#include "tessera/base/error.h"
#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// An axis counted from the end if negative, as one in [0, rank); a user error naming the node if it is out of range.
inline int64_t resolve_axis(const Node& node, int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    fail("kernel", "{}: axis {} of a tensor that has {} dimensions", node.label(), axis, rank);
  return axis < 0 ? axis + rank : axis;
}

/// A tensor around one axis: [outer, extent, inner].
struct AxisView {
  int64_t outer = 1, extent = 1, inner = 1;

  AxisView(const Dims& dims, int64_t axis) : extent(dims[axis]) {
    for (int64_t d = 0; d < axis; ++d) outer *= dims[d];
    for (size_t d = axis + 1; d < dims.size(); ++d) inner *= dims[d];
  }
};

}  // namespace tessera::kernels
