#include <algorithm>

#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/pads.h"

/// Gradients of operators that move elements, or give them another shape.
namespace tessera::ops {
namespace {

size_t axis_of_parts(const GradientBuilder& b, size_t rank, int64_t otherwise) {
  return normalize_axis(b.node, b.node.get_int("axis", otherwise), rank);
}

// Whole numbers that say which elements of one dimension a result's elements are: the gradient adds them up.
Value* positions(GradientBuilder& b, const std::vector<int64_t>& indices) {
  return b.graph.constant_int64(indices);
}

}  // namespace

void reshape_gradient(GradientBuilder& b) {
  b.give(0, b.reshape(b.g(), b.x()->shape()));
}

void expand_gradient(GradientBuilder& b) {
  b.give(0, b.g());
}

void transpose_gradient(GradientBuilder& b) {
  const size_t rank = b.x()->rank();
  std::vector<int64_t> reversed = all_axes(rank);
  std::reverse(reversed.begin(), reversed.end());
  const std::vector<int64_t> permutation = b.node.get_ints("perm", reversed);
  std::vector<int64_t> inverse(rank);
  for (size_t d = 0; d < rank; ++d) inverse[static_cast<size_t>(permutation[d])] = static_cast<int64_t>(d);
  b.give(0, b.transpose(b.g(), inverse));
}

void concat_gradient(GradientBuilder& b) {
  const size_t axis = axis_of_parts(b, b.y()->rank(), 0);
  Shape extents;
  for (const Value* operand : b.node.inputs) extents.push_back(operand->shape()[axis]);
  if (extents.size() == 1) return b.give(0, b.g());
  Value* first =
      b.emit("Split", {b.g(), b.shape_operand(extents)}, {{"axis", static_cast<int64_t>(axis), ""}}, extents.size());
  const Node* split = first->producer;
  for (size_t i = 0; i < extents.size(); ++i) b.give(i, split->outputs[i]);
}

void split_gradient(GradientBuilder& b) {
  std::vector<Value*> parts;
  for (size_t r = 0; r < b.node.outputs.size(); ++r) parts.push_back(b.g_or_zeros(r));
  const auto axis = static_cast<int64_t>(axis_of_parts(b, b.x()->rank(), 0));
  b.give(0, parts.size() == 1 ? parts[0] : b.emit("Concat", parts, {{"axis", axis, ""}}));
}

void blocks_gradient(GradientBuilder& b) {
  // DepthToSpace and SpaceToDepth undo each other, but for the order CRD of channels, which SpaceToDepth lacks.
  const std::vector<Attribute> size = {{"blocksize", b.node.get_int("blocksize", 1), ""}};
  if (b.node.is("SpaceToDepth")) return b.give(0, b.emit("DepthToSpace", {b.g()}, size));
  if (b.node.get_string("mode", "DCR") == "DCR") return b.give(0, b.emit("SpaceToDepth", {b.g()}, size));
  const Shape& x = b.x()->shape();
  const int64_t block = b.node.get_int("blocksize", 1);
  const Expr depth = Expr::exact_divide(x[1], block * block).value();
  Value* cut = b.reshape(b.g(), {x[0], depth, x[2], block, x[3], block});
  b.give(0, b.reshape(b.transpose(cut, {0, 1, 3, 5, 2, 4}), x));
}

void trilu_gradient(GradientBuilder& b) {
  std::vector<Value*> operands = {b.g()};
  if (b.x(1)) operands.push_back(b.x(1));
  b.give(0, b.emit("Trilu", operands, b.node.attributes));
}

void slice_gradient(GradientBuilder& b) {
  const Shape& from = b.x()->shape();
  const std::vector<Expr> starts = content_operand(b.node, 1, "starts"), ends = content_operand(b.node, 2, "ends");
  std::vector<size_t> axes;
  if (auto given = axes_operand(b.node, 3, from.size()))
    axes = *given;
  else
    for (size_t i = 0; i < starts.size(); ++i) axes.push_back(i);
  std::vector<int64_t> steps(starts.size(), 1);
  if (b.x(4)) steps = constant_operand(b.node, 4, "steps");
  Value* gradient = b.g();
  Shape before(from.size(), 0), after(from.size(), 0);
  bool padded = false;
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t d = axes[i];
    const Expr count = gradient->shape()[d];
    if (steps[i] == 1) {
      // The start counts from the end if it is negative, and is within the extent.
      Expr start = starts[i];
      if (const auto known = start.constant(); known && *known < 0) start = max(from[d] + start, 0);
      start = min(start, from[d]);
      before[d] = start;
      after[d] = from[d] - start - count;
      padded |= !before[d].is(0) || !after[d].is(0);
      continue;
    }
    const auto extent = from[d].constant(), first = starts[i].constant(), taken = count.constant();
    if (!extent || !first || !taken)
      b.refuse("it takes elements of a symbolic extent at a step other than 1; fix the extent with `shapes`");
    int64_t at = *first < 0 ? *first + *extent : *first;
    at = steps[i] > 0 ? std::clamp<int64_t>(at, 0, *extent) : std::clamp<int64_t>(at, -1, *extent - 1);
    std::vector<int64_t> indices;
    for (int64_t k = 0; k < *taken; ++k) indices.push_back(at + k * steps[i]);
    Shape whole = gradient->shape();
    whole[d] = from[d];
    gradient = b.scatter_along(gradient, positions(b, indices), static_cast<int64_t>(d), whole);
  }
  if (padded) {
    Shape pads = before;
    pads.insert(pads.end(), after.begin(), after.end());
    gradient = b.emit("Pad", {gradient, b.shape_operand(pads)});
  }
  b.give(0, gradient);
}

void pad_gradient(GradientBuilder& b) {
  const Shape& from = b.x()->shape();
  const auto known = paddings(b.node);
  if (!known) b.refuse("its pads are not known before the run");
  const std::vector<std::pair<Expr, Expr>>& pads = *known;
  const std::string mode = b.node.get_string("mode", "constant");
  Value* gradient = b.g();
  if (mode == "constant") {
    Shape inverse(2 * from.size(), 0);
    for (size_t d = 0; d < from.size(); ++d) {
      inverse[d] = Expr(0) - pads[d].first;
      inverse[from.size() + d] = Expr(0) - pads[d].second;
    }
    Value* kept = b.emit("Pad", {gradient, b.shape_operand(inverse)});
    b.give(0, kept);
    if (b.wants(2)) {
      Value* all = b.sum(gradient, all_axes(from.size()), false);
      // What a negative pad takes away is a zero in neither.
      b.give(2, b.sub(all, b.sum(kept, all_axes(from.size()), false)));
    }
    return;
  }
  for (size_t d = 0; d < from.size(); ++d) {
    const auto extent = from[d].constant(), begin = pads[d].first.constant(), end = pads[d].second.constant();
    if (begin == 0 && end == 0) continue;
    if (!extent || !begin || !end) b.refuse("it repeats elements of a symbolic extent; fix the extent with `shapes`");
    // Negative pads take elements away first; what is left is repeated.
    const int64_t cropped = std::max<int64_t>(-*begin, 0);
    const int64_t body = std::max<int64_t>(*extent - cropped - std::max<int64_t>(-*end, 0), 1);
    std::vector<int64_t> indices;
    for (int64_t at = -std::max<int64_t>(*begin, 0); at < body + std::max<int64_t>(*end, 0); ++at) {
      int64_t source = std::clamp<int64_t>(at, 0, body - 1);
      if (mode == "wrap") source = ((at % body) + body) % body;
      if (mode == "reflect" && body > 1) {
        const int64_t period = 2 * (body - 1);
        source = ((at % period) + period) % period;
        source = std::min(source, period - source);
      }
      indices.push_back(cropped + source);
    }
    Shape whole = gradient->shape();
    whole[d] = from[d];
    gradient = b.scatter_along(gradient, positions(b, indices), static_cast<int64_t>(d), whole);
  }
  b.give(0, gradient);
}

void tile_gradient(GradientBuilder& b) {
  const Shape& from = b.x()->shape();
  const std::vector<Expr> repeats = content_operand(b.node, 1, "repeats");
  Shape cut;
  std::vector<int64_t> axes;
  for (size_t d = 0; d < from.size(); ++d) {
    if (!repeats[d].is(1)) {
      axes.push_back(static_cast<int64_t>(cut.size()));
      cut.push_back(repeats[d]);
    }
    cut.push_back(from[d]);
  }
  b.give(0, b.sum(b.reshape(b.g(), cut), axes, false));
}

void resize_gradient(GradientBuilder& b) {
  // Resizing is linear, and works along each dimension by itself: what it makes of the rows of a unit matrix is the
  // matrix by which it multiplies.
  const Shape &from = b.x()->shape(), &to = b.y()->shape();
  if (b.node.get_string("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize")
    b.refuse("it crops while it resizes (tf_crop_and_resize); crop with Slice");
  std::vector<Attribute> attributes;
  for (const Attribute& attribute : b.node.attributes)
    if (attribute.name != "axes" && attribute.name != "keep_aspect_ratio_policy" &&
        attribute.name != "extrapolation_value")
      attributes.push_back(attribute);
  // Scales may say another size than extents do, and coordinates follow the scales.
  std::vector<float> scales(from.size(), 1);
  const bool by_scale = b.x(2) && !product(b.x(2)->shape()).is(0);
  if (by_scale) {
    const std::vector<size_t> axes =
        normalize_axes(b.node, b.node.get_ints("axes", all_axes(from.size())), from.size());
    for (size_t i = 0; i < axes.size(); ++i) scales[axes[i]] = b.x(2)->data.as<float>()[i];
  }
  Value* gradient = b.g();
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] == to[d] && scales[d] == 1) continue;
    const auto count = from[d].constant();
    if (!count || !to[d].is_constant()) b.refuse("it resizes a symbolic extent; fix the extent with `shapes`");
    Tensor unit = Tensor::zeros(gradient->dtype(), {*count, *count});
    const size_t width = static_cast<size_t>(bits_of(gradient->dtype()) / 8);
    Tensor one = b.number(gradient, 1)->data;
    for (int64_t i = 0; i < *count; ++i)
      std::copy_n(static_cast<const std::byte*>(one.data), width,
                  reinterpret_cast<std::byte*>(unit.mutable_data()) + static_cast<size_t>(i * (*count + 1)) * width);
    std::vector<Value*> operands = {b.graph.add_constant("unit", unit), nullptr};
    if (by_scale)
      operands.push_back(b.graph.add_constant("scales", Tensor::of<float>(DType::float32, {2}, {1, scales[d]})));
    else
      operands.insert(operands.end(), {nullptr, b.graph.constant_int64({*count, *to[d].constant()})});
    gradient = b.multiply_along(gradient, b.emit("Resize", operands, attributes), d);
  }
  b.give(0, gradient);
}

}  // namespace tessera::ops
