#include <algorithm>
#include <cmath>
#include <optional>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/pads.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lower.h"

namespace tessera::rewrite {
namespace {

using ops::fail_node;
using ops::shape_of;
using Values = std::vector<Value*>;

// The points of an image of the given size, with coordinates in [-1, 1] and a 1, times each matrix of the batch.
Values affine_grid(Lowerer& l) {
  Value* theta = l.in(0);
  const std::vector<int64_t> size = ops::constant_operand(l.node, 1, "size");
  if (size.size() != 4 && size.size() != 5)
    fail_node(l.node, "its size has {}; it must be [N, C, H, W] or [N, C, D, H, W]",
              counted(size.size(), "entry", "entries"));
  const bool corners = l.node.get_int("align_corners", 0) != 0;
  const std::vector<int64_t> extents(size.begin() + 2, size.end());
  const size_t dims = extents.size();
  constexpr int64_t kMostPoints = int64_t{1} << 28;
  if (std::any_of(extents.begin(), extents.end(), [](int64_t extent) { return extent < 0; }) ||
      count_of(extents) > kMostPoints)
    fail_node(l.node, "its size is negative, or has more than {} points", kMostPoints);
  const int64_t points = count_of(extents);
  std::vector<double> coordinates;
  for (int64_t p = 0; p < points; ++p) {
    std::vector<double> point(dims + 1, 1);
    int64_t rest = p;
    for (size_t d = dims; d-- > 0; rest /= extents[d]) {
      const auto i = static_cast<double>(rest % extents[d]), n = static_cast<double>(extents[d]);
      // The last dimension's coordinate comes first.
      point[dims - 1 - d] = corners ? (n > 1 ? 2 * i / (n - 1) - 1 : -1) : (2 * i + 1) / n - 1;
    }
    coordinates.insert(coordinates.end(), point.begin(), point.end());
  }
  Value* base = l.b.graph.add_constant(
      "points", Tensor::of(DType::float64, {points, static_cast<int64_t>(dims) + 1}, coordinates));
  Value* grid = l.b.emit("MatMul", {l.b.cast(base, theta->dtype()), l.b.turn(theta)});
  Shape shape = {theta->shape().at(0)};
  for (int64_t extent : extents) shape.emplace_back(extent);
  shape.emplace_back(static_cast<int64_t>(dims));
  return {l.b.reshape(grid, shape)};
}

// Puts patches back into an image, adding them up where they overlap: a transposed convolution whose window for entry i
// of a patch is 1 at i and 0 elsewhere.
Values col_to_image(Lowerer& l) {
  Value* x = l.in(0);
  const std::vector<int64_t> image = ops::constant_operand(l.node, 1, "image_shape"),
                             block = ops::constant_operand(l.node, 2, "block_shape");
  const size_t dims = image.size();
  const std::vector<int64_t> ones(dims, 1);
  const auto strides = l.node.get_ints("strides", ones), dilations = l.node.get_ints("dilations", ones);
  const auto pads = l.node.get_ints("pads", std::vector<int64_t>(2 * dims, 0));
  const auto below_one = [](const std::vector<int64_t>& numbers) {
    return std::any_of(numbers.begin(), numbers.end(), [](int64_t number) { return number < 1; });
  };
  if (below_one(image) || below_one(block) || below_one(strides) || below_one(dilations))
    fail_node(l.node, "its image_shape, block_shape, strides and dilations must be at least 1");
  const int64_t entries = count_of(block);
  const auto channels = x->rank() == 3 ? Expr::exact_divide(x->shape().at(1), entries) : std::nullopt;
  if (!channels || block.size() != dims || strides.size() != dims || dilations.size() != dims ||
      pads.size() != 2 * dims)
    fail_node(l.node, "its input {} must be [batch, channels · {}, patches]; its image has {}, its block {}",
              to_string(x->shape()), entries, counted(dims, "dimension"), block.size());
  Shape patches = {x->shape().at(0) * *channels, Expr(entries)}, out = {x->shape().at(0), *channels};
  std::vector<int64_t> more;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t span = dilations[d] * (block[d] - 1) + 1, room = image[d] + pads[d] + pads[d + dims] - span;
    if (room < 0) fail_node(l.node, "its block does not fit into the image's dimension {} of {}", d, image[d]);
    patches.emplace_back(room / strides[d] + 1);
    more.push_back(room % strides[d]);
    out.emplace_back(image[d]);
  }
  std::vector<double> one_each(static_cast<size_t>(entries * entries), 0);
  Dims window = {entries, 1};
  window.insert(window.end(), block.begin(), block.end());
  for (int64_t i = 0; i < entries; ++i) one_each[static_cast<size_t>(i * entries + i)] = 1;
  Value* weight = l.b.cast(l.b.graph.add_constant("windows", Tensor::of(DType::float64, window, one_each)), x->dtype());
  Value* y = l.b.emit("ConvTranspose", {l.b.reshape(x, patches), weight},
                      {attribute("strides", strides), attribute("dilations", dilations), attribute("pads", pads),
                       attribute("output_padding", more), attribute("kernel_shape", block)});
  return {l.b.reshape(y, out)};
}

// Puts each element where it came from, and zeros elsewhere.
Values max_unpool(Lowerer& l) {
  Value* x = l.in(0);
  const size_t rank = x->rank(), dims = rank - 2;
  const auto window = l.node.get_ints("kernel_shape");
  if (rank < 3 || l.in(1)->shape() != x->shape())
    fail_node(l.node, "its input {} must be [batch, channels, …], and its indices {} must have the same shape",
              to_string(x->shape()), to_string(l.in(1)->shape()));
  const std::vector<int64_t> ones(dims, 1);
  const auto strides = l.node.get_ints("strides", ones);
  const auto pads = l.node.get_ints("pads", std::vector<int64_t>(2 * dims, 0));
  if (window.size() != dims || strides.size() != dims || pads.size() != 2 * dims)
    fail_node(l.node, "its window, strides and pads must have an entry per dimension of the image, {}", dims);
  Shape shape = x->shape();
  for (size_t d = 0; d < dims; ++d)
    shape[d + 2] = (x->shape().at(d + 2) - 1) * strides[d] + window[d] - pads[d] - pads[d + dims];
  Value* flat = l.b.emit("ScatterElements",
                         {l.b.zeros(x->dtype(), {product(shape)}), l.b.reshape(l.in(1), {product(x->shape())}),
                          l.b.reshape(x, {product(x->shape())})},
                         {attribute("axis", int64_t{0})});
  Value* y = l.b.reshape(flat, shape);
  if (!l.has(2)) return {y};
  const std::vector<Expr> wanted = ops::content_operand(l.node, 2, "output_shape");
  if (wanted.size() != rank)
    fail_node(l.node, "its output_shape has {} for {}", counted(wanted.size(), "entry", "entries"),
              counted(rank, "dimension"));
  std::vector<Expr> around(rank, 0);
  for (size_t d = 0; d < rank; ++d) around.push_back(wanted[d] - shape[d]);
  return {l.b.emit("Pad", {y, l.b.shape_operand(around)})};
}

// y = x / (bias + alpha · m)^beta, m the mean square over neighbouring channels.
Values local_response(Lowerer& l) {
  Value* x = l.in(0);
  const auto size = l.node.get<int64_t>("size");
  if (!size || *size < 1 || x->rank() < 2)
    fail_node(l.node, "its size must be at least 1, and its input {} must have channels", to_string(x->shape()));
  const Shape& shape = x->shape();
  Expr inner = 1;
  for (size_t d = 2; d < shape.size(); ++d) inner = inner * shape[d];
  Value* square = l.b.reshape(l.b.mul(x, x), {shape[0], 1, shape[1], inner});
  const int64_t before = (*size - 1) / 2;
  Value* mean = l.b.emit("AveragePool", {square},
                         {attribute("kernel_shape", std::vector<int64_t>{*size, 1}),
                          attribute("pads", std::vector<int64_t>{before, 0, *size - 1 - before, 0}),
                          attribute("count_include_pad", int64_t{1})});
  Value* scaled = l.b.mul(l.b.reshape(mean, shape), l.node.get_float("alpha", 0.0001F));
  Value* sum = l.b.add(scaled, l.node.get_float("bias", 1));
  return {l.b.div(x, l.b.emit("Pow", {sum, l.b.number(x, l.node.get_float("beta", 0.75F))}))};
}

bool is_column_first(const Node& node) {
  return node.get_string("mode", "DCR") == "CRD";
}

// Moves blocks of pixels to channels; those of one channel are adjacent.
Values space_to_channels(Lowerer& l) {
  const Shape& x = shape_of(l.node, 0);
  const int64_t block = l.node.get_int("blocksize", 0);
  const auto rows = block > 0 && x.size() == 4 ? Expr::exact_divide(x[2], block) : std::nullopt;
  const auto columns = rows ? Expr::exact_divide(x[3], block) : std::nullopt;
  if (!columns) fail_node(l.node, "its input {} does not divide into blocks of {}", to_string(x), block);
  Value* split = l.b.reshape(l.in(0), {x[0], x[1], *rows, Expr(block), *columns, Expr(block)});
  return {l.b.reshape(l.b.transpose(split, {0, 1, 3, 5, 2, 4}), {x[0], x[1] * block * block, *rows, *columns})};
}

bool keeps_ratio(const Node& node) {
  return node.get_string("keep_aspect_ratio_policy", "stretch") != "stretch";
}

// One scale for all dimensions: the smallest or the largest of those that the sizes give.
Values resize_in_ratio(Lowerer& l) {
  const Shape& x = shape_of(l.node, 0);
  const std::vector<int64_t> sizes = ops::constant_operand(l.node, 3, "sizes");
  std::vector<size_t> axes;
  if (l.node.find_attribute("axes"))
    axes = ops::normalize_axes(l.node, l.node.get_ints("axes"), x.size());
  else
    for (size_t d = 0; d < x.size(); ++d) axes.push_back(d);
  const std::string policy = l.node.get_string("keep_aspect_ratio_policy", "");
  if (sizes.size() != axes.size() || (policy != "not_larger" && policy != "not_smaller"))
    fail_node(l.node, "its policy '{}' or its {} sizes for {} axes are invalid", policy, sizes.size(), axes.size());
  std::vector<double> extents;
  double scale = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto extent = x[axes[i]].constant();
    if (!extent) fail_node(l.node, "dimension {} of its input, {}, must be a number", axes[i], x[axes[i]].str());
    extents.push_back(static_cast<double>(*extent));
    const double own = static_cast<double>(sizes[i]) / extents.back();
    scale = i == 0 ? own : policy == "not_larger" ? std::min(scale, own) : std::max(scale, own);
  }
  std::vector<int64_t> kept;
  for (double extent : extents) kept.push_back(static_cast<int64_t>(std::floor(scale * extent + 0.5)));
  std::vector<Attribute> attributes = l.node.attributes;
  std::erase_if(attributes, [](const Attribute& a) { return a.name == "keep_aspect_ratio_policy"; });
  return {l.b.emit("Resize", {l.in(0), l.in(1), nullptr, l.b.graph.constant_int64(kept)}, attributes)};
}

// Elements that a Pad adds before and after each dimension; nullopt if that is not known.
std::optional<std::vector<std::pair<int64_t, int64_t>>> known_pads(const Node& node) {
  const bool has_axes = !node.input(3) || numbers(node.input(3));
  const auto pads = has_axes && node.inputs[0]->has_shape() ? ops::paddings(node) : std::nullopt;
  if (!pads) return std::nullopt;
  std::vector<std::pair<int64_t, int64_t>> all;
  for (const auto& [before, after] : *pads) {
    if (!before.is_constant() || !after.is_constant()) return std::nullopt;
    all.emplace_back(*before.constant(), *after.constant());
  }
  return all;
}

// Whether a Pad in mode 'wrap' repeats a dimension's elements at most once at either end.
bool wraps_once(const Node& node) {
  if (node.get_string("mode", "constant") != "wrap") return false;
  const auto pads = known_pads(node);
  for (size_t d = 0; pads && d < pads->size(); ++d) {
    const auto [before, after] = (*pads)[d];
    const auto extent = node.inputs[0]->shape()[d].constant();
    if (before == 0 && after == 0) continue;
    if (before < 0 || after < 0 || !extent || std::max(before, after) > *extent) return false;
  }
  return pads.has_value();
}

// For one dimension after the other: its last elements, all elements, and its first ones.
Values wrapped(Lowerer& l) {
  Value* x = l.in(0);
  const auto pads = *known_pads(l.node);
  for (size_t d = 0; d < pads.size(); ++d) {
    const auto [before, after] = pads[d];
    const auto axis = static_cast<int64_t>(d);
    const Expr extent = x->shape()[d];
    Values pieces = {x};
    if (before > 0) pieces.insert(pieces.begin(), l.b.slice(x, axis, extent - before, extent));
    if (after > 0) pieces.push_back(l.b.slice(x, axis, 0, after));
    if (pieces.size() > 1) x = l.b.emit("Concat", pieces, {attribute("axis", axis)});
  }
  return {x == l.in(0) ? l.b.emit("Identity", {x}) : x};
}

}  // namespace

std::vector<Lowering> image_lowerings() {
  return {
      {"AffineGrid", 2, affine_grid, {1}},
      {"Col2Im", 3, col_to_image, {1, 2}},
      {"MaxUnpool", 2, max_unpool, {2}},
      {"LRN", 1, local_response},
      {"SpaceToDepth", 1, space_to_channels, {}, is_column_first},
      {"Pad", 2, wrapped, {1, 3}, wraps_once},
      {"Resize", 1, resize_in_ratio, {2, 3}, keeps_ratio},
  };
}

}  // namespace tessera::rewrite
