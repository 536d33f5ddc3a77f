#include <cmath>
#include <numeric>

#include "tessera/ops/gradients.h"
#include "tessera/ops/infer.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

constexpr size_t kRegion = 1, kScales = 2, kSizes = 3;

/// The dimensions that `scales` or `sizes` list, in their order.
std::vector<size_t> resized_axes(const Node& node) {
  const size_t rank = shape_of(node, 0).size();
  std::vector<int64_t> all(rank);
  std::iota(all.begin(), all.end(), 0);
  return normalize_axes(node, node.get_ints("axes", all), rank);
}

bool is_given(const Node& node, size_t index) {
  return has_operand(node, index) && !product(shape_of(node, index)).is(0);
}

std::vector<float> resize_scales_of(const Node& node) {
  const Value& scales = operand(node, kScales);
  if (scales.kind != ValueKind::constant || scales.dtype() != DType::float32)
    fail_node(node,
              "its scales ('{}') are not float32 constants, so that the shape of the result is not known before "
              "the run; export the model with fixed scales, or with sizes",
              scales.name);
  auto elements = scales.data.as<float>();
  return {elements.begin(), elements.end()};
}

/// floor(extent·scale). A symbolic extent takes whole factors and divisors only.
Expr scaled(const Node& node, const Expr& extent, float scale) {
  constexpr float kMost = 0x1p53f;
  if (!(scale > 0)) fail_node(node, "a scale is {}; scales are positive", scale);
  const auto number = extent.constant();
  const float divisor = std::round(1 / scale);
  if (!((number ? static_cast<float>(*number) * scale : scale) < kMost) || (!number && !(divisor < kMost)))
    fail_node(node, "the extent {} times {} is no size that a tensor can have; give smaller scales", extent.str(),
              scale);
  if (number) return static_cast<int64_t>(std::floor(static_cast<float>(*number) * scale));
  if (scale == std::floor(scale)) return extent * static_cast<int64_t>(scale);
  if (std::abs(divisor * scale - 1) < 1e-6f) return floordiv(extent, static_cast<int64_t>(divisor));
  fail_node(node, "the extent {} times {} is not known before the run; fix the extent, or use a whole scale",
            extent.str(), scale);
}

void infer_resize(Node& node) {
  const Value& data = operand(node, 0);
  auto axes = resized_axes(node);
  const bool by_scale = is_given(node, kScales);
  if (by_scale == is_given(node, kSizes)) fail_node(node, "it needs either scales or sizes");
  Shape shape = data.shape();
  if (by_scale) {
    auto scales = resize_scales_of(node);
    if (scales.size() != axes.size())
      fail_node(node, "it has {} scales for {} dimensions; give one for each", scales.size(), axes.size());
    for (size_t i = 0; i < axes.size(); ++i) shape[axes[i]] = scaled(node, shape[axes[i]], scales[i]);
  } else {
    if (auto policy = node.get_string("keep_aspect_ratio_policy", "stretch"); policy != "stretch")
      fail_node(node, "keep_aspect_ratio_policy '{}' is not supported; give the final sizes with 'stretch'", policy);
    auto sizes = content_operand(node, kSizes, "sizes");
    if (sizes.size() != axes.size())
      fail_node(node, "it has {} sizes for {} dimensions; give one for each", sizes.size(), axes.size());
    for (size_t i = 0; i < axes.size(); ++i) shape[axes[i]] = sizes[i];
  }
  set_result(node, 0, data.dtype(), std::move(shape));
}

/// What keeps its extent passes; a dimension that is interpolated along must be whole.
Rule resize_rule(const Node& node) {
  const Shape &from = shape_of(node, 0), &to = node.output()->shape();
  std::vector<bool> stays;
  for (size_t d = 0; d < from.size(); ++d) stays.push_back(from[d] == to[d]);
  if (node.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize")
    for (size_t axis : resized_axes(node)) stays[axis] = false;
  if (is_given(node, kScales)) {
    auto axes = resized_axes(node);
    auto scales = resize_scales_of(node);
    for (size_t i = 0; i < axes.size(); ++i) stays[axes[i]] = stays[axes[i]] && scales[i] == 1;
  }
  Rule rule = dimension_rule(node, stays);
  rule.results = {rule.operands[0]};
  rule.partial(Reduction::sum, {0});
  return rule;
}

std::vector<Value*> localize_resize(Localizer& local) {
  if (!is_given(local.node, kSizes)) return local.same();
  std::vector<Expr> sizes;
  for (size_t axis : resized_axes(local.node)) sizes.push_back((*local.outputs[0].shape)[axis]);
  return local.same_with(kSizes, std::move(sizes));
}

Expr resize_flops(const Node& node) {
  return product(node.output()->shape()) * 4;
}

}  // namespace

std::vector<OpDef> resize_ops() {
  return {{.type = "Resize",
           .infer = infer_resize,
           .rule = resize_rule,
           .flops = resize_flops,
           .localize = localize_resize,
           .gradient = resize_gradient,
           .values = {kRegion, kScales, kSizes},
           .always_float32 = {kScales}}};
}

}  // namespace tessera::ops
