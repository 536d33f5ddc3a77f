#include "tessera/ir/resize.h"

#include <cmath>
#include <numeric>
#include <optional>

#include "tessera/base/counted.h"
#include "tessera/ops/examples/examples.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/one_program.h"
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

std::vector<float> resize_scales(const Node& node) {
  const Value& scales = operand(node, kScales);
  if (scales.kind != ValueKind::constant || scales.dtype() != DType::float32)
    throw NotInOneProgram(
        "shape", node,
        fmt::format("its scales ('{}') are not float32 constants, so that the shape of the result is not known before "
                    "the run; export the model with fixed scales, or with sizes",
                    scales.name),
        {.value = scales.name});
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
    fail_node(node, "the extent {} times {} is not a size that a tensor can have; give smaller scales", extent.str(),
              scale);
  if (number) return static_cast<int64_t>(std::floor(static_cast<float>(*number) * scale));
  if (scale == std::floor(scale)) return extent * static_cast<int64_t>(scale);
  if (std::abs(divisor * scale - 1) < 1e-6f) return floordiv(extent, static_cast<int64_t>(divisor));
  fail_node(node, "the extent {} times {} is not known before the run; fix the extent, or use a whole scale",
            extent.str(), scale);
}

constexpr std::string_view kPartDomain = "tessera";

void infer_part(Node& node) {
  const Value& data = operand(node, 0);
  const std::vector<Expr> place = content_operand(node, kResizePlace, "the place of its part");
  if (place.size() != kResizePlaceNumbers * data.rank())
    fail_node(node, "its place has {} numbers; it must have {} for each dimension", place.size(), kResizePlaceNumbers);
  Shape shape;
  for (size_t d = 0; d < data.rank(); ++d) shape.push_back(place[kResizePlaceNumbers * d + 1]);
  set_result(node, 0, data.dtype(), std::move(shape));
}

void infer_resize(Node& node) {
  const Value& data = operand(node, 0);
  auto axes = resized_axes(node);
  const bool by_scale = is_given(node, kScales);
  if (by_scale == is_given(node, kSizes)) fail_node(node, "it needs either scales or sizes");
  Shape shape = data.shape();
  if (by_scale) {
    auto scales = resize_scales(node);
    if (scales.size() != axes.size())
      fail_node(node, "it has {} for {}; give one for each", counted(scales.size(), "scale"),
                counted(axes.size(), "dimension"));
    for (size_t i = 0; i < axes.size(); ++i) shape[axes[i]] = scaled(node, shape[axes[i]], scales[i]);
  } else {
    if (auto policy = node.get_string("keep_aspect_ratio_policy", "stretch"); policy != "stretch")
      fail_node(node, "keep_aspect_ratio_policy '{}' is not supported; give the final sizes with 'stretch'", policy);
    auto sizes = content_operand(node, kSizes, "sizes");
    if (sizes.size() != axes.size())
      fail_node(node, "it has {} for {}; give one for each", counted(sizes.size(), "size"),
                counted(axes.size(), "dimension"));
    for (size_t i = 0; i < axes.size(); ++i) shape[axes[i]] = sizes[i];
  }
  set_result(node, 0, data.dtype(), std::move(shape));
}

/// How the elements of a dimension are enlarged, if a part of it is enlarged as the whole is, except near borders:
/// `times` elements come from each, and depend on those up to `margin` away. Weights must come out alike at all places,
/// which quotients by powers of two do.
struct Enlargement {
  int64_t times = 1, margin = 1;
};

std::optional<Enlargement> enlargement(const Node& node, size_t d) {
  const std::string mode = node.get_string("mode", "nearest");
  const std::string places = node.get_string("coordinate_transformation_mode", "half_pixel");
  if (places == "align_corners" || places == "tf_crop_and_resize") return std::nullopt;
  const auto ratio = Expr::exact_divide(node.output()->shape()[d], shape_of(node, 0)[d]);
  const auto times = ratio ? ratio->constant() : std::nullopt;
  if (!times || *times < 2) return std::nullopt;
  if (mode != "nearest" && (*times & (*times - 1)) != 0) return std::nullopt;
  if (is_given(node, kScales)) {
    const auto axes = resized_axes(node);
    const auto scales = resize_scales(node);
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i] == d && scales[i] != static_cast<float>(*times)) return std::nullopt;
  }
  return Enlargement{*times, mode == "cubic" ? 2 : 1};
}

/// The factor by which a dimension is enlarged, as the kernel has it.
double scale_of(const Node& node, size_t d, int64_t in, int64_t out) {
  if (is_given(node, kScales)) {
    const auto axes = resized_axes(node);
    const auto scales = resize_scales(node);
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i] == d) return scales[i];
  }
  return static_cast<double>(out) / static_cast<double>(in);
}

/// What the elements of a dimension of known extents read. Places are fractions of 2^20, which is exact to one element,
/// so that results read no more than one element beyond what they need on either side.
std::optional<Window> resize_window(const Node& node, size_t d) {
  constexpr int64_t over = int64_t{1} << 20, most = over;
  const auto in = shape_of(node, 0)[d].constant(), out = node.output()->shape()[d].constant();
  const auto places = resize_places(node.get_string("coordinate_transformation_mode", "half_pixel"));
  if (!in || !out || !places || *places == ResizePlaces::tf_crop_and_resize) return std::nullopt;
  if (*in < 1 || *in > most || *out < 2 || *out > most) return std::nullopt;
  const double scale = scale_of(node, d, *in, *out);
  const std::string mode = node.get_string("mode", "nearest");
  double reach = mode == "cubic" ? 2 : 1;
  if (mode != "nearest" && node.get_int("antialias", 0) != 0) reach /= std::min(scale, 1.0);
  const double begin = resize_place(*places, 0, *in, *out, scale),
               step = resize_place(*places, 1, *in, *out, scale) - begin;
  // Where extents and scale do not fit, places may be anywhere.
  const double last = begin + step * static_cast<double>(*out);
  if (!(step >= 0) || !(reach < static_cast<double>(most)) || !(std::abs(begin) < static_cast<double>(most)) ||
      !(std::abs(last) < 2.0 * static_cast<double>(most)))
    return std::nullopt;
  const auto fraction = [](double x) { return static_cast<int64_t>(std::floor(x * static_cast<double>(over))); };
  Window window{fraction(step + 0.5 / static_cast<double>(over)), over, fraction(begin - reach - 1),
                fraction(begin + reach + 1)};
  window.beyond = Window::Beyond::nearest;
  return window;
}

/// What keeps its extent passes, and what is interpolated along reads a halo.
Rule resize_rule(const Node& node) {
  const Shape &from = shape_of(node, 0), &to = node.output()->shape();
  std::vector<bool> stays;
  for (size_t d = 0; d < from.size(); ++d) stays.push_back(from[d] == to[d]);
  if (node.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize")
    for (size_t axis : resized_axes(node)) stays[axis] = false;
  if (is_given(node, kScales)) {
    auto axes = resized_axes(node);
    auto scales = resize_scales(node);
    for (size_t i = 0; i < axes.size(); ++i) stays[axes[i]] = stays[axes[i]] && scales[i] == 1;
  }
  Rule rule = dimension_rule(node, stays);
  rule.results = {rule.operands[0]};
  for (size_t d = 0; d < from.size(); ++d) {
    if (stays[d]) continue;
    std::optional<Window> window = resize_window(node, d);
    if (const auto large = enlargement(node, d)) {
      const int64_t reach = large->margin * large->times;
      window = Window{1, large->times, -reach, reach};
    }
    if (window) rule.operands[0][d] = rule.results[0][d] = {rule.add_halo(factor_name(d), to[d], *window)};
  }
  // Beyond the region that is cropped stands a number that partial sums would have several times.
  const bool crops = node.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize";
  if (!crops || node.get_float("extrapolation_value", 0) == 0) rule.partial(Reduction::sum, {0});
  return rule;
}

/// The part that a rank makes of what its results depend on, at the places that these have in the whole.
std::vector<Value*> localize_part(Localizer& local) {
  const Shape &from = shape_of(local.node, 0), &to = local.node.output()->shape();
  std::vector<Expr> place;
  for (size_t d = 0; d < from.size(); ++d) {
    const Expr here = (*local.outputs[0].shape)[d];
    if (!local.is_split_halo(0, d)) {
      // Along what keeps its extent, a part is like a whole.
      const bool passes = from[d] == to[d];
      for (const Expr& number : {Expr(0), here, passes ? here : to[d], Expr(0), passes ? here : from[d]})
        place.push_back(number);
      continue;
    }
    const Localizer::Widened part = local.widen(local.inputs[0], 0, d, nullptr);
    local.inputs[0] = part.value;
    const Expr first = local.offsets[local.rule.operands[0][d].front()];
    for (const Expr& number : {first, here, to[d], max(0, part.begin + part.before), from[d]}) place.push_back(number);
  }
  std::vector<Value*> operands = local.inputs;
  operands.resize(kResizePlace, nullptr);
  operands[kSizes] = nullptr;
  operands.push_back(local.graph.add_expression(local.node.outputs[0]->name + ".place", place));
  return {local.emit("Resize", operands, local.outputs[0], local.node.attributes, kPartDomain)};
}

/// A rank enlarges what its results depend on, and takes its own out of that.
std::vector<Value*> localize_resize(Localizer& local) {
  for (size_t d = 0; d < local.outputs[0].shape->size(); ++d)
    if (local.is_split_halo(0, d) && !enlargement(local.node, d)) return localize_part(local);
  const Shape wanted = *local.outputs[0].shape;
  std::vector<Expr> starts, ends;
  std::vector<int64_t> axes;
  for (size_t d = 0; d < wanted.size(); ++d) {
    if (!local.is_split_halo(0, d)) continue;
    const int64_t times = enlargement(local.node, d)->times;
    const Localizer::Widened part = local.widen(local.inputs[0], 0, d, nullptr);
    local.inputs[0] = part.value;
    (*local.outputs[0].shape)[d] = part.value->shape()[d] * times;
    starts.push_back(local.offsets[local.rule.operands[0][d].front()] - (part.begin + part.before) * times);
    ends.push_back(starts.back() + wanted[d]);
    axes.push_back(static_cast<int64_t>(d));
  }
  std::vector<Expr> sizes;
  for (size_t axis : resized_axes(local.node)) sizes.push_back((*local.outputs[0].shape)[axis]);
  std::vector<Value*> results = is_given(local.node, kSizes) ? local.same_with(kSizes, std::move(sizes)) : local.same();
  return axes.empty() ? results : std::vector{sliced(local, results[0], starts, ends, axes, wanted)};
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
           .always_float32 = {kScales},
           .examples = resize_examples},
          {.type = "Resize",
           .domain = kPartDomain,
           .infer = infer_part,
           .rule = blank_rule,
           .flops = resize_flops,
           .no_gradient = kMadeByPartitioner,
           .values = {kRegion, kScales, kSizes, kResizePlace},
           .always_float32 = {kScales},
           .examples = resize_part_examples}};
}

}  // namespace tessera::ops
