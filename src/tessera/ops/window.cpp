#include "tessera/ops/window.h"

#include <limits>

#include "tessera/base/checked.h"
#include "tessera/ops/infer.h"

namespace tessera::ops {
namespace {

/// So that what is computed of windows does not overflow.
constexpr int64_t kMostAlong = std::numeric_limits<int32_t>::max();

Dims read(const Node& node, std::string_view attribute, size_t count, int64_t otherwise, int64_t least) {
  Dims values = node.get_ints(attribute, Dims(count, otherwise));
  if (values.size() != count)
    fail_node(node, "'{}' has {} values, {} are needed for its spatial dimensions", attribute, values.size(), count);
  for (int64_t value : values)
    if (value < least || value > kMostAlong)
      fail_node(node, "'{}' has {}; it must be {} to {}", attribute, value, least, kMostAlong);
  return values;
}

}  // namespace

Windows windows_of(const Node& node, Dims kernel) {
  size_t rank = kernel.size();
  Windows windows;
  windows.auto_pad = node.get_string("auto_pad", "NOTSET");
  bool known = false;
  for (std::string_view name : {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}) known |= windows.auto_pad == name;
  if (!known) fail_node(node, "auto_pad is '{}'; it may be NOTSET, VALID, SAME_UPPER or SAME_LOWER", windows.auto_pad);
  for (int64_t extent : kernel)
    if (extent < 1 || extent > kMostAlong)
      fail_node(node, "a window has the extent {}; it must be 1 to {}", extent, kMostAlong);
  if (!count_if_fits(kernel)) fail_node(node, "a window has more elements than can be counted; make it smaller");
  windows.kernel = std::move(kernel);
  windows.strides = read(node, "strides", rank, 1, 1);
  windows.dilations = read(node, "dilations", rank, 1, 1);
  windows.begin = windows.end = Dims(rank, 0);
  if (windows.auto_pad == "NOTSET") {
    Dims pads = read(node, "pads", 2 * rank, 0, 0);
    windows.begin.assign(pads.begin(), pads.begin() + static_cast<ptrdiff_t>(rank));
    windows.end.assign(pads.begin() + static_cast<ptrdiff_t>(rank), pads.end());
  }
  windows.ceil_mode = node.get_int("ceil_mode", 0) != 0;
  return windows;
}

Expr windows_along(const Node& node, const Windows& windows, size_t d, const Expr& extent) {
  int64_t stride = windows.strides[d];
  if (windows.auto_pad.starts_with("SAME")) return ceildiv(extent, stride);
  Expr padded = extent + windows.begin[d] + windows.end[d];
  Expr last_start = padded - windows.reach(d);
  Expr count = floordiv(last_start, stride) + 1;
  // Rounding up may add a window, unless it would start in the padding behind the last element.
  if (windows.ceil_mode)
    count = min(ceildiv(last_start, stride) + 1, floordiv(extent + windows.begin[d] - 1, stride) + 1);
  if (auto known = count.constant(); known && *known < 1 && !extent.is(0))
    fail_node(node, "a window that reaches over {} elements does not fit in spatial dimension {} of {} elements",
              windows.reach(d), d, padded.str());
  return count;
}

}  // namespace tessera::ops
