#include "tessera/kernels/cpu/image/convolution_layout.h"

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/image/channel_blocks.h"
#include "tessera/kernels/cpu/library/extents.h"
#include "tessera/kernels/cpu/library/fusions.h"

namespace tessera::kernels {

ConvolutionShape convolution_shape(const Node& node, const Dims& x, const Dims& weight, const Dims& y) {
  const int64_t group = node.get_int("group", 1);
  if (x.size() < 3 || weight.size() != x.size() || y.size() != x.size() || group < 1 || weight[0] % group != 0 ||
      weight[1] * group != x[1] || y[0] != x[0] || y[1] != weight[0])
    fail("kernel",
         "{}: input {}, weight {}, result {} and group {} do not fit; the weight is [out, in/group, kernel...]",
         node.label(), text_of(x), text_of(weight), text_of(y), group);
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
  // Elements beyond the last window are not read; oneDNN expects the padding that is actually used.
  for (size_t i = 0; i < kernel.size(); ++i)
    shape.windows.pads_end[i] =
        (y[i + 2] - 1) * shape.windows.strides[i] + shape.windows.span(i) - x[i + 2] - shape.windows.pads_begin[i];
  return shape;
}

namespace {

/// A Conv on one image of about the given extent, for trying a layout.
ConvolutionShape typical_shape(const Node& node, const TensorDesc& weight, int64_t extent) {
  const Dims kernel(weight.dims.begin() + 2, weight.dims.end());
  const WindowGeometry windows = window_geometry(node, Dims(kernel.size(), extent), kernel);
  Dims x{1, weight.dims[1] * node.get_int("group", 1)}, y{1, weight.dims[0]};
  for (size_t i = 0; i < kernel.size(); ++i) {
    x.push_back(std::max(extent, windows.span(i)));
    y.push_back((x.back() + windows.pads_begin[i] + windows.pads_end[i] - windows.span(i)) / windows.strides[i] + 1);
  }
  return convolution_shape(node, x, weight.dims, y);
}

/// With images in blocks of channels, as between convolutions (a first convolution's few channels are row-major, unless
/// one block has all); if that is not possible, in the library's choice.
std::optional<dnnl::convolution_forward::primitive_desc> try_layout(const ConvolutionShape& shape, DType dtype,
                                                                    const onednn::Md& weights) {
  const auto in_blocks = [dtype](const Dims& dims) {
    TensorDesc desc{dtype, dims};
    desc.block = block_of(desc);
    return desc;
  };
  if (channel_block(dtype) != 0 && shape.x.size() <= 5) {
    TensorDesc x = in_blocks(shape.x);
    if (x.block > shape.x[1]) x.block = 0;
    if (auto desc =
            onednn::convolution(layout_of(x), weights, {}, layout_of(in_blocks(shape.y)), shape.onednn_windows()))
      return desc;
  }
  return onednn::convolution(onednn::any_layout(dtype, shape.x), weights, {}, onednn::any_layout(dtype, shape.y),
                             shape.onednn_windows());
}

/// Layouts that oneDNN's older, size-independent kernels read, widest vectors first.
std::vector<onednn::Md> blocked_layouts(DType dtype, const Dims& weights, bool grouped) {
  using Tag = dnnl::memory::format_tag;
  const size_t spatial = weights.size() - (grouped ? 3 : 2);
  if (spatial < 1 || spatial > 3) return {};
  static constexpr std::array<std::array<Tag, 3>, 6> tags{{
      {Tag::OIw16i16o, Tag::OIhw16i16o, Tag::OIdhw16i16o},
      {Tag::OIw8i8o, Tag::OIhw8i8o, Tag::OIdhw8i8o},
      {Tag::gOIw16i16o, Tag::gOIhw16i16o, Tag::gOIdhw16i16o},
      {Tag::gOIw8i8o, Tag::gOIhw8i8o, Tag::gOIdhw8i8o},
      {Tag::OIw8i16o2i, Tag::OIhw8i16o2i, Tag::OIdhw8i16o2i},
      {Tag::gOIw8i16o2i, Tag::gOIhw8i16o2i, Tag::gOIdhw8i16o2i},
  }};
  const auto layout = [&](size_t row) { return onednn::Md(weights, onednn::type_of(dtype), tags[row][spatial - 1]); };
  if (dtype == DType::bfloat16) return {layout(grouped ? 5 : 4)};
  return {layout(grouped ? 2 : 0), layout(grouped ? 3 : 1)};
}

}  // namespace

std::optional<WeightLayout> convolution_weight_layout(const Node& node, const TensorDesc& weight) {
  const DType stored = stored_type(weight.dtype);
  if (stored == DType::undefined || weight.rank() < 3 || weight.count() == 0) return std::nullopt;
  onednn::TeamScope team(1);  // the layout must not depend on the caller
  std::vector<ConvolutionShape> shapes;
  for (int64_t extent : {28, 56, 14, 7}) shapes.push_back(typical_shape(node, weight, extent));
  const Dims& extents = shapes[0].weights;
  const auto favourite = try_layout(shapes[0], stored, onednn::any_layout(stored, extents));
  if (!favourite) return std::nullopt;
  std::vector<onednn::Md> candidates = blocked_layouts(stored, extents, extents.size() > weight.dims.size());
  candidates.insert(candidates.begin(), favourite->weights_desc());
  // A kernel whose layout changes with the image's size has no packed form that serves all sizes.
  for (const onednn::Md& packed : candidates) {
    const bool serves_all = std::all_of(shapes.begin(), shapes.end(), [&](const ConvolutionShape& shape) {
      return try_layout(shape, stored, packed).has_value();
    });
    if (!serves_all) continue;
    WeightLayout layout{stored, onednn::dense(stored, extents), packed};
    if (layout.packed == layout.plain && stored == weight.dtype) return std::nullopt;
    return layout;
  }
  return std::nullopt;
}

}  // namespace tessera::kernels
