#pragma once

#include <optional>

#include "tessera/kernels/cpu/image/windows.h"
#include "tessera/kernels/cpu/product/weight_layout.h"

namespace tessera::kernels {

/// A Conv's extents as oneDNN sees them.
struct ConvolutionShape {
  Dims x, y;     ///< [batch, channels, spatial...]
  Dims weights;  ///< [out, in, kernel...], or [group, out/group, in/group, kernel...] if there are groups
  WindowGeometry windows;

  onednn::Windows onednn_windows() const {
    return {windows.strides, windows.dilations, windows.pads_begin, windows.pads_end};
  }
};

/// The shape of a Conv node (or its packed form) on x [batch, channels, spatial...] and weight [out, in/group,
/// kernel...], giving y.
ConvolutionShape convolution_shape(const Node& node, const Dims& x, const Dims& weight, const Dims& y);

/// Layout of a Conv's weight, chosen for images of a typical size.
std::optional<WeightLayout> convolution_weight_layout(const Node& node, const TensorDesc& weight);

}  // namespace tessera::kernels
