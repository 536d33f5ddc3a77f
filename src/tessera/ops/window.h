#pragma once

#include <string>

#include "tessera/ir/graph.h"

namespace tessera::ops {

/// The sliding windows of a convolution or a pooling, per spatial dimension.
struct Windows {
  Dims kernel;      ///< elements of a window
  Dims strides;     ///< between windows
  Dims dilations;   ///< between a window's elements
  Dims begin, end;  ///< padding before and after; zero if auto_pad decides
  std::string auto_pad;
  bool ceil_mode = false;

  /// Elements from a window's first to its last.
  int64_t reach(size_t d) const { return (kernel[d] - 1) * dilations[d] + 1; }
  /// Whether windows and elements are the same along a spatial dimension.
  bool pointwise(size_t d) const { return kernel[d] == 1 && strides[d] == 1 && begin[d] == 0 && end[d] == 0; }
};

/// Reads a node's attributes, with ONNX's defaults, for windows of these extents. Throws a user error naming the node
/// if one has the wrong length or a value out of range.
Windows windows_of(const Node& node, Dims kernel);

/// The number of windows that fit along spatial dimension `d` of that extent (ONNX's output shape formulas). Throws a
/// user error if none is known to fit.
Expr windows_along(const Node& node, const Windows& windows, size_t d, const Expr& extent);

}  // namespace tessera::ops
