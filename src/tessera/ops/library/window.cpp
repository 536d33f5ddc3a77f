#include "tessera/ops/library/window.h"

#include <limits>

#include "tessera/base/checked.h"
#include "tessera/base/counted.h"
#include "tessera/ops/library/infer.h"

namespace tessera::ops {
namespace {

/// So that what is computed of windows does not overflow.
constexpr int64_t kMostAlong = std::numeric_limits<int32_t>::max();

Dims read(const Node& node, std::string_view attribute, size_t count, int64_t otherwise, int64_t least) {
  Dims values = node.get_ints(attribute, Dims(count, otherwise));
  if (values.size() != count)
    fail_node(node, "'{}' has {}, {} are needed for its spatial dimensions", attribute, counted(values.size(), "value"),
              count);
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
  if (windows.auto_pad.starts_with("SAME")) return ceildiv(extent, windows.strides[d]);
  return windows_along(node, windows, d, extent, windows.begin[d], windows.end[d]);
}

Expr windows_along(const Node& node, const Windows& windows, size_t d, const Expr& extent, const Expr& begin,
                   const Expr& end) {
  const int64_t stride = windows.strides[d];
  Expr padded = extent + begin + end;
  Expr last_start = padded - windows.reach(d);
  Expr count = floordiv(last_start, stride) + 1;
  // Rounding up may add a window, unless it would start in the padding behind the last element.
  if (windows.ceil_mode) count = min(ceildiv(last_start, stride) + 1, floordiv(extent + begin - 1, stride) + 1);
  if (extent.is(0)) return max(0, count);  // of a rank without elements
  if (auto known = count.constant(); known && *known < 1)
    fail_node(node, "a window that reaches over {} does not fit in spatial dimension {} of {} elements",
              counted(windows.reach(d), "element"), d, padded.str());
  return extent_of_part(count);
}

std::optional<std::vector<Padding>> paddings_of(const Windows& windows, const Shape& extents) {
  std::vector<Padding> all;
  for (size_t d = 0; d < extents.size(); ++d) {
    if (!windows.auto_pad.starts_with("SAME")) {
      all.push_back({windows.begin[d], windows.end[d]});
      continue;
    }
    const Expr count = ceildiv(extents[d], windows.strides[d]);
    const auto total = max((count - 1) * windows.strides[d] + windows.reach(d) - extents[d], 0).constant();
    if (!total) return std::nullopt;
    const int64_t less = *total / 2, more = *total - less;
    all.push_back(windows.auto_pad == "SAME_UPPER" ? Padding{less, more} : Padding{more, less});
  }
  return all;
}

namespace {

std::string factor_of(size_t d) {
  return fmt::format("x{}", d);
}

}  // namespace

DimFactors add_window_factor(Rule& rule, const Windows& windows, size_t d, const Padding& padding, const Expr& in,
                             const Expr& out) {
  if (windows.pointwise(d) && in == out) return {rule.add(factor_of(d), in)};
  Window window{windows.strides[d], 1, -padding.begin, windows.reach(d) - 1 - padding.begin};
  if (!windows.ceil_mode) window.slack = windows.strides[d] - 1;  // no further window fits
  return {rule.add_halo(factor_of(d), out, window)};
}

bool splits_windows(const Localizer& local, size_t d) {
  return local.is_split_halo(0, 2 + d);
}

std::vector<Value*> same_windows(Localizer& local, const Windows& windows, double fill) {
  return windows_filled_with(local, windows, local.graph.constant_scalar(local.inputs[0]->dtype(), fill));
}

std::vector<Value*> windows_filled_with(Localizer& local, const Windows& windows, Value* fill) {
  const Shape& data = local.node.input(0)->shape();
  const Shape spatial(data.begin() + 2, data.end());
  std::vector<Padding> paddings;
  for (size_t d = 0; d < spatial.size(); ++d) {
    if (!splits_windows(local, d)) continue;
    if (paddings.empty()) paddings = *paddings_of(windows, spatial);
    local.inputs[0] = local.widen(local.inputs[0], 0, 2 + d, fill).value;
    paddings[d] = {};
  }
  std::vector<Value*> results = local.same();
  if (paddings.empty()) return results;
  Node* node = results[0]->producer;
  Dims pads;
  for (const Padding& padding : paddings) pads.push_back(padding.begin);
  for (const Padding& padding : paddings) pads.push_back(padding.end);
  node->remove_attribute("auto_pad");
  node->set("pads", pads);
  return results;
}

}  // namespace tessera::ops
