#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ops/op.h"

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
/// The same between so many elements of padding, whatever `windows` says of it.
Expr windows_along(const Node& node, const Windows& windows, size_t d, const Expr& extent, const Expr& begin,
                   const Expr& end);

struct Padding {
  int64_t begin = 0, end = 0;
};

/// The padding along every spatial dimension of these extents, with auto_pad resolved; nullopt if that depends on a
/// size that is not known before the run.
std::optional<std::vector<Padding>> paddings_of(const Windows& windows, const Shape& extents);

/// Adds the factor of spatial dimension `d`, "x0", for windows over `in` elements that give `out` results: one that
/// passes if windows are elements, else a halo.
DimFactors add_window_factor(Rule& rule, const Windows& windows, size_t d, const Padding& padding, const Expr& in,
                             const Expr& out);

/// Whether a local form's windows along spatial dimension `d` are split over ranks, and may read others' elements.
bool splits_windows(const Localizer& local, size_t d);

/// Gives a local form's operand 0 what its windows read along the split spatial dimensions, with padding of
/// `fill` there, a number or a local scalar. Appends the node itself, whose padding is that of the other dimensions,
/// and returns its results.
std::vector<Value*> same_windows(Localizer& local, const Windows& windows, double fill);
std::vector<Value*> windows_filled_with(Localizer& local, const Windows& windows, Value* fill);

}  // namespace tessera::ops
