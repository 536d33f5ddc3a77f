#include <algorithm>

#include "tessera/ops/dims.h"
#include "tessera/ops/gradients.h"
#include "tessera/ops/infer.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/window.h"

namespace tessera::ops {
namespace {

bool is_global(const Node& node) {
  return node.op_type.starts_with("Global");
}

void infer_pool(Node& node) {
  const Shape& data = shape_of(node, 0);
  if (data.size() < 3) fail_node(node, "pooling needs data of rank 3 or more ([n, c, x, …]), not {}", to_string(data));
  Shape shape(data.begin(), data.begin() + 2);
  if (is_global(node)) {
    shape.resize(data.size(), 1);
  } else {
    Dims kernel = node.get_ints("kernel_shape");
    if (kernel.size() != data.size() - 2)
      fail_node(node, "kernel_shape has {} values for the {} spatial dimensions of {}", kernel.size(), data.size() - 2,
                to_string(data));
    Windows windows = windows_of(node, std::move(kernel));
    for (size_t d = 0; d + 2 < data.size(); ++d) shape.push_back(windows_along(node, windows, d, data[2 + d]));
  }
  set_result(node, 0, node.input(0)->dtype(), shape);
  if (node.output(1)) set_result(node, 1, DType::int64, std::move(shape));
}

Rule pool_rule(const Node& node) {
  const Shape& data = node.input(0)->shape();
  Rule rule = blank_rule(node);
  // MaxPool's indices count elements of the whole operand.
  const auto kind = node.output(1) ? FactorKind::index : FactorKind::pass;
  auto outer = add_dims(rule, {data[0], data[1]}, "nc", kind);
  std::copy(outer.begin(), outer.end(), rule.operands[0].begin());
  for (size_t r = 0; r < node.outputs.size(); ++r)
    if (node.outputs[r]) std::copy(outer.begin(), outer.end(), rule.results[r].begin());
  if (node.op_type.ends_with("AveragePool")) rule.partial(Reduction::sum, {0});
  // No partial maximum: a maximum over a window drops NaN, one over ranks does not.
  return rule;
}

// A rank has c of C channels from c0 on, and images from n0 on. Its element s of image n and channel i has the number
// (n·c + i)·S + s among its own S elements a plane, and ((n0 + n)·C + c0 + i)·S + s among all, which is more by
// (n0·C + c0)·S + n·(C - c)·S.
std::vector<Value*> localize_pool(Localizer& local) {
  std::vector<Value*> results = local.same();
  const int batch = local.factor("n"), channels = local.factor("c");
  if (!local.node.output(1) || (!local.split[batch] && !local.split[channels])) return results;
  const Shape& data = local.node.input(0)->shape();
  const Expr plane = product(Shape(data.begin() + 2, data.end()));
  const TensorType& type = local.outputs[1];
  const auto number = [&](Expr value) { return local.graph.add_expression("offset", {std::move(value)}, true); };
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
  Value* moved = local.emit("Add", {results[1], offset}, type);
  results[1] = local.emit("Where", {none, results[1], moved}, type);
  return results;
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
                   .localize = type == "MaxPool" ? localize_pool : nullptr,
                   .gradient = pooling_gradient(type),
                   .windows = !type.starts_with("Global")});
  return ops;
}

}  // namespace tessera::ops
