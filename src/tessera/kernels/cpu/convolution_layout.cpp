#include "tessera/kernels/cpu/convolution_layout.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/extents.h"

namespace tessera::kernels {

ConvolutionShape convolution_shape(const Node& node, const Dims& x, const Dims& weight, const Dims& y) {
  const int64_t group = node.get_int("group", 1);
  if (x.size() < 3 || weight.size() != x.size() || y.size() != x.size() || group < 1 || weight[0] % group != 0 ||
      weight[1] * group != x[1])
    fail("kernel", "{}: input {}, weight {} and group {} do not fit; the weight is [out, in/group, kernel...]",
         node.label(), text_of(x), text_of(weight), group);
  ConvolutionShape shape;
  shape.x = x;
  shape.y = y;
  shape.weights = weight;
  if (group > 1) {
    shape.weights[0] /= group;
    shape.weights.insert(shape.weights.begin(), group);
  }
  const Dims kernel(weight.begin() + 2, weight.end());
  const Dims named = node.get_ints("kernel_shape");
  if (!named.empty() && named != kernel)
    fail("kernel", "{}: attribute kernel_shape {} differs from the weight's extents {}", node.label(), text_of(named),
         text_of(kernel));
  shape.windows = window_geometry(node, Dims(x.begin() + 2, x.end()), kernel);
  // What lies beyond the last window is not read; oneDNN wants to hear the padding that is.
  for (size_t i = 0; i < kernel.size(); ++i)
    shape.windows.pads_end[i] =
        (y[i + 2] - 1) * shape.windows.strides[i] + shape.windows.span(i) - x[i + 2] - shape.windows.pads_begin[i];
  return shape;
}

std::optional<WeightLayout> convolution_weight_layout(const Node& node, const TensorDesc& weight) {
  const DType stored = stored_type(weight.dtype);
  if (stored == DType::undefined || weight.rank() < 3 || weight.count() == 0) return std::nullopt;
  constexpr int64_t typical_extent = 28;
  const Dims kernel(weight.dims.begin() + 2, weight.dims.end());
  Dims x{1, weight.dims[1] * node.get_int("group", 1)}, y{1, weight.dims[0]};
  Dims spatial;
  for (int64_t extent : kernel) spatial.push_back(std::max(typical_extent, extent));
  const WindowGeometry windows = window_geometry(node, spatial, kernel);
  for (size_t i = 0; i < kernel.size(); ++i) {
    x.push_back(std::max(spatial[i], windows.span(i)));
    y.push_back((x.back() + windows.pads_begin[i] + windows.pads_end[i] - windows.span(i)) / windows.strides[i] + 1);
  }
  const ConvolutionShape shape = convolution_shape(node, x, weight.dims, y);
  onednn::TeamScope team(1);  // the layout must not depend on who asks
  auto desc = onednn::convolution(onednn::any_layout(stored, shape.x), onednn::any_layout(stored, shape.weights), {},
                                  onednn::any_layout(stored, shape.y), shape.onednn_windows());
  if (!desc) return std::nullopt;
  WeightLayout layout{stored, onednn::dense(stored, shape.weights), desc->weights_desc()};
  if (layout.packed == layout.plain && stored == weight.dtype) return std::nullopt;
  return layout;
}

}  // namespace tessera::kernels
