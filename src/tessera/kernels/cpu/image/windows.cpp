#include "tessera/kernels/cpu/image/windows.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

Dims attribute_of(const Node& node, std::string_view name, size_t length, int64_t otherwise) {
  Dims values = node.get_ints(name, Dims(length, otherwise));
  if (values.empty()) values.assign(length, otherwise);
  if (values.size() != length)
    fail("kernel", "{}: attribute '{}' has {} elements, but the operand's spatial dimensions need {}", node.label(),
         name, values.size(), length);
  return values;
}

}  // namespace

WindowGeometry window_geometry(const Node& node, const Dims& spatial, const Dims& kernel) {
  const size_t rank = kernel.size();
  WindowGeometry windows;
  windows.kernel = kernel;
  windows.strides = attribute_of(node, "strides", rank, 1);
  windows.dilations = attribute_of(node, "dilations", rank, 1);
  for (size_t i = 0; i < rank; ++i)
    if (kernel[i] < 1 || windows.strides[i] < 1 || windows.dilations[i] < 1)
      fail("kernel", "{}: kernel extents, strides and dilations must be at least 1", node.label());
  const std::string auto_pad = node.get_string("auto_pad", "NOTSET");
  if (auto_pad == "NOTSET") {
    const Dims pads = attribute_of(node, "pads", 2 * rank, 0);
    windows.pads_begin.assign(pads.begin(), pads.begin() + rank);
    windows.pads_end.assign(pads.begin() + rank, pads.end());
    return windows;
  }
  windows.pads_begin.assign(rank, 0);
  windows.pads_end.assign(rank, 0);
  if (auto_pad == "VALID") return windows;
  if (auto_pad != "SAME_UPPER" && auto_pad != "SAME_LOWER")
    fail("kernel", "{}: auto_pad is '{}'; it must be NOTSET, VALID, SAME_UPPER or SAME_LOWER", node.label(), auto_pad);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t out = (spatial[i] + windows.strides[i] - 1) / windows.strides[i];
    const int64_t total = std::max<int64_t>((out - 1) * windows.strides[i] + windows.span(i) - spatial[i], 0);
    windows.pads_begin[i] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    windows.pads_end[i] = total - windows.pads_begin[i];
  }
  return windows;
}

SpatialLoop spatial_loop(const Node& node, const WindowGeometry& windows, std::span<const int64_t> in,
                         std::span<const int64_t> out) {
  const size_t rank = windows.rank();
  if (rank > 3) fail("kernel", "{}: {} spatial dimensions; at most three are computed", node.label(), rank);
  SpatialLoop loop;
  for (size_t i = 0, to = 3 - rank; i < rank; ++i, ++to) {
    loop.in[to] = in[i];
    loop.out[to] = out[i];
    loop.kernel[to] = windows.kernel[i];
    loop.stride[to] = windows.strides[i];
    loop.dilation[to] = windows.dilations[i];
    loop.pad[to] = windows.pads_begin[i];
    loop.pad_end[to] = windows.pads_end[i];
  }
  return loop;
}

}  // namespace tessera::kernels
