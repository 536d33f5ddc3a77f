#include <algorithm>
#include <limits>

#include "tessera/base/counted.h"
#include "tessera/ops/examples/examples.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/node_builder.h"
#include "tessera/ops/library/window.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

bool is_global(const Node& node) {
  return node.op_type.starts_with("Global");
}

// In our own domain, where ranks differ in their padding, it is an operand.
constexpr size_t kPads = 1;

void infer_pool(Node& node) {
  const Shape& data = shape_of(node, 0);
  if (data.size() < 3) fail_node(node, "pooling needs data of rank 3 or more ([n, c, x, …]), not {}", to_string(data));
  Shape shape(data.begin(), data.begin() + 2);
  if (is_global(node)) {
    shape.resize(data.size(), 1);
  } else {
    Dims kernel = node.get_ints("kernel_shape");
    if (kernel.size() != data.size() - 2)
      fail_node(node, "kernel_shape has {} for the {} spatial dimensions of {}", counted(kernel.size(), "value"),
                data.size() - 2, to_string(data));
    const Windows windows = windows_of(node, std::move(kernel));
    const size_t dims = windows.kernel.size();
    std::vector<Expr> pads;
    if (node.domain == "tessera") {
      pads = content_operand(node, kPads, "pads");
      if (pads.size() != 2 * dims)
        fail_node(node, "pads has {} for {}; give one before and one after each", counted(pads.size(), "element"),
                  counted(dims, "spatial dimension"));
    }
    for (size_t d = 0; d < dims; ++d)
      shape.push_back(pads.empty() ? windows_along(node, windows, d, data[2 + d])
                                   : max(0, windows_along(node, windows, d, data[2 + d], pads[d], pads[dims + d])));
  }
  set_result(node, 0, node.input(0)->dtype(), shape);
  if (node.output(1)) set_result(node, 1, DType::int64, std::move(shape));
}

// Where padding would count as elements, a rank's local form has to know which of the elements are padding.
bool counts_elements(const Node& node, const Windows& windows) {
  if (!node.is("AveragePool")) return false;
  const bool padded = std::any_of(windows.begin.begin(), windows.begin.end(), [](int64_t pad) { return pad > 0; }) ||
                      std::any_of(windows.end.begin(), windows.end.end(), [](int64_t pad) { return pad > 0; }) ||
                      windows.auto_pad.starts_with("SAME");
  return windows.ceil_mode || (padded && node.get_int("count_include_pad", 0) == 0);
}

// The split dimensions of a global pooling are reduced over the ranks, if their parts' results combine.
void add_reduced(Rule& rule, const Node& node) {
  const bool maximum = node.is("GlobalMaxPool");
  if (!maximum && !node.is("GlobalAveragePool")) return;
  const Shape& data = node.input(0)->shape();
  for (size_t d = 2; d < data.size(); ++d)
    rule.operands[0][d] = {
        rule.add(fmt::format("x{}", d - 2), data[d], FactorKind::reduction, maximum ? Reduction::max : Reduction::sum)};
}

Rule pool_rule(const Node& node) {
  const Shape& data = node.input(0)->shape();
  Rule rule = blank_rule(node);
  if (node.domain == "tessera") return rule;  // a rank's own node, which is not split again
  // MaxPool's indices count elements of the whole operand.
  const auto kind = node.output(1) ? FactorKind::index : FactorKind::pass;
  auto outer = add_dims(rule, {data[0], data[1]}, "nc", kind);
  std::copy(outer.begin(), outer.end(), rule.operands[0].begin());
  for (size_t r = 0; r < node.outputs.size(); ++r)
    if (node.outputs[r]) std::copy(outer.begin(), outer.end(), rule.results[r].begin());
  if (node.op_type.ends_with("AveragePool")) rule.partial(Reduction::sum, {0});
  if (is_global(node)) {
    add_reduced(rule, node);
    return rule;
  }
  const Windows windows = windows_of(node, node.get_ints("kernel_shape"));
  const Shape spatial(data.begin() + 2, data.end());
  if (const auto paddings = paddings_of(windows, spatial))
    for (size_t d = 0; d < spatial.size(); ++d) {
      rule.operands[0][2 + d] =
          add_window_factor(rule, windows, d, (*paddings)[d], spatial[d], node.output()->shape()[2 + d]);
      for (size_t r = 0; r < node.outputs.size(); ++r)
        if (node.outputs[r]) rule.results[r][2 + d] = rule.operands[0][2 + d];
    }
  // No partial maximum: over a window, oneDNN's drops NaN (our own kernel keeps it), and the one over ranks keeps it.
  return rule;
}

// For windows that must tell padding from elements: gives a local form's operand 0 what they read along split
// dimensions, and its node the padding, in our own domain. `first`: per spatial dimension, the first element of operand
// 0.
std::vector<Value*> with_own_padding(Localizer& local, const Windows& windows, std::vector<Expr>& first) {
  const Shape& data = local.node.input(0)->shape();
  const auto paddings = paddings_of(windows, Shape(data.begin() + 2, data.end()));
  first.assign(data.size() - 2, 0);
  bool widened = false;
  std::vector<Expr> begin, end;
  for (size_t d = 0; paddings && d + 2 < data.size(); ++d) {
    begin.emplace_back((*paddings)[d].begin);
    end.emplace_back((*paddings)[d].end);
    if (!splits_windows(local, d)) continue;
    const Localizer::Widened part = local.widen(local.inputs[0], 0, 2 + d, nullptr);
    local.inputs[0] = part.value;
    first[d] = part.begin + part.before;
    begin.back() = part.before;
    end.back() = min(part.after, end.back());  // a window that overhangs does not count what is beyond
    widened = true;
  }
  if (!widened) return local.same();
  begin.insert(begin.end(), end.begin(), end.end());
  local.inputs.resize(kPads + 1);
  std::vector<Value*> results = local.same_with(kPads, begin);
  Node* node = results[0]->producer;
  node->domain = "tessera";
  node->remove_attribute("auto_pad");
  node->remove_attribute("pads");
  return results;
}

// Numbers of elements of a rank's images, counted as if it had all of each image. Its own images have other extents,
// and begin at other elements: number 5 of an image of 3 columns is row 1, column 2.
Value* among_whole_images(Localizer& local, Value* numbers, const std::vector<Expr>& first) {
  const Shape &part = local.inputs[0]->shape(), &whole = local.node.input(0)->shape();
  const TensorType type = local.outputs[1];
  const auto apply = [&](std::string_view op, Value* a, const Expr& b) {
    return local.emit(op, {a, local.graph.add_expression("extent", {b}, true)}, type);
  };
  std::vector<size_t> order;  // the fastest dimension first
  for (size_t d = 2; d < whole.size(); ++d) order.push_back(d);
  if (local.node.get_int("storage_order", 0) == 0) std::reverse(order.begin(), order.end());
  Expr stride = 1;
  Value* sum = nullptr;
  for (size_t d : order) {
    const Expr extent = max(1, part[d]);  // of nothing there are no numbers
    Value* along = apply("Mod", numbers, extent);
    numbers = apply("Div", numbers, extent);
    Value* placed = apply("Mul", apply("Add", along, first[d - 2]), stride);
    sum = sum ? local.emit("Add", {sum, placed}, type) : placed;
    stride = stride * whole[d];
  }
  return local.emit("Add", {apply("Mul", numbers, stride), sum}, type);
}

// A rank has c of C channels from c0 on, and images from n0 on. Its element s of image n and channel i has the number
// (n·c + i)·S + s among its own S elements a plane, and ((n0 + n)·C + c0 + i)·S + s among all, which is more by
// (n0·C + c0)·S + n·(C - c)·S.
std::vector<Value*> max_pool_with_indices(Localizer& local, const Windows& windows) {
  std::vector<Expr> first;
  std::vector<Value*> results = with_own_padding(local, windows, first);
  const int batch = local.factor("n"), channels = local.factor("c");
  bool splits_images = false;
  for (size_t d = 0; d < first.size(); ++d) splits_images |= splits_windows(local, d);
  if (!splits_images && !local.split[batch] && !local.split[channels]) return results;
  const Shape& data = local.node.input(0)->shape();
  const Expr plane = product(Shape(data.begin() + 2, data.end()));
  const TensorType& type = local.outputs[1];
  const auto number = [&](Expr value) { return local.graph.add_expression("offset", {std::move(value)}, true); };
  Value* own = splits_images ? among_whole_images(local, results[1], first) : results[1];
  Value* offset = number((local.offsets[batch] * data[1] + local.offsets[channels]) * plane);
  if (local.split[channels]) {
    const Expr count = local.extents[batch];
    Shape column(data.size(), 1);
    column[0] = count;
    Value* images = local.emit("Range", {number(0), number(count), number(1)}, {DType::int64, Shape{count}});
    Value* steps = local.emit("Mul", {images, number((data[1] - local.extents[channels]) * plane)}, images->type);
    Value* offsets = local.emit("Add", {steps, offset}, images->type);
    offset = local.emit("Reshape", {offsets, local.graph.add_expression("column", column)}, {DType::int64, column},
                        {{"allowzero", int64_t{1}, ""}});
  }
  // A window of nothing but padding has the index -1.
  Value* none = local.emit("Less", {results[1], number(0)}, {DType::boolean, type.shape});
  Value* moved = local.emit("Add", {own, offset}, type);
  results[1] = local.emit("Where", {none, results[1], moved}, type);
  return results;
}

std::vector<Value*> localize_max_pool(Localizer& local) {
  const Windows windows = windows_of(local.node, local.node.get_ints("kernel_shape"));
  if (local.node.output(1)) return max_pool_with_indices(local, windows);
  const DType dtype = local.inputs[0]->dtype();
  const double lowest = is_float(dtype)         ? -std::numeric_limits<double>::infinity()
                        : dtype == DType::uint8 ? 0
                                                : std::numeric_limits<int8_t>::lowest();
  return same_windows(local, windows, lowest);
}

std::vector<Value*> localize_lp_pool(Localizer& local) {
  return same_windows(local, windows_of(local.node, local.node.get_ints("kernel_shape")), 0);
}

std::vector<Value*> localize_average_pool(Localizer& local) {
  const Windows windows = windows_of(local.node, local.node.get_ints("kernel_shape"));
  if (!counts_elements(local.node, windows)) return same_windows(local, windows, 0);
  std::vector<Expr> first;
  return with_own_padding(local, windows, first);
}

// A mean over split dimensions: each rank's sum divided by the global count, as a ReduceMean has it. Partial sums of 16
// bits are float32, also those that only the operand's are.
std::vector<Value*> localize_global_average(Localizer& local) {
  const Shape& data = local.node.input(0)->shape();
  bool split = false;
  Expr count = 1;
  std::vector<int64_t> axes;
  for (size_t d = 2; d < data.size(); ++d) {
    split |= local.split[local.rule.operands[0][d].front()];
    count = count * data[d];
    axes.push_back(static_cast<int64_t>(d));
  }
  if (!split && local.outputs[0].dtype == local.inputs[0]->dtype()) return local.same();
  const DType dtype = local.outputs[0].dtype, wide = bits_of(dtype) < 32 ? DType::float32 : dtype;
  NodeBuilder b(local.graph, local.node.outputs[0]->name);
  return {b.cast(b.div(b.sum(b.cast(local.inputs[0], wide), axes), b.scalar(wide, count)), dtype)};
}

LocalizeFn local_form_of(std::string_view type) {
  if (type == "MaxPool") return localize_max_pool;
  if (type == "AveragePool") return localize_average_pool;
  if (type == "LpPool") return localize_lp_pool;
  return type == "GlobalAveragePool" ? localize_global_average : nullptr;
}

Expr pool_flops(const Node& node) {
  if (is_global(node)) return elements_of(*node.input(0));
  return elements_of(*node.output()) * count_of(node.get_ints("kernel_shape"));
}

}  // namespace

std::vector<OpDef> pooling_ops() {
  std::vector<OpDef> ops;
  for (std::string_view type :
       {"MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"})
    ops.push_back({.type = type,
                   .infer = infer_pool,
                   .rule = pool_rule,
                   .flops = pool_flops,
                   .localize = local_form_of(type),
                   .gradient = pooling_gradient(type),
                   .wide_sums = type == "GlobalAveragePool",
                   .windows = !type.starts_with("Global"),
                   .examples = pooling_examples});
  for (std::string_view type : {"MaxPool", "AveragePool"})
    ops.push_back({.type = type,
                   .domain = "tessera",
                   .infer = infer_pool,
                   .rule = pool_rule,
                   .flops = pool_flops,
                   .no_gradient = kMadeByPartitioner,
                   .values = {kPads},
                   .windows = true});
  return ops;
}

}  // namespace tessera::ops
