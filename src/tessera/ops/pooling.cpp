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
  // MaxPool's indices count elements of the whole operand, batch and channels included: a part cannot know them.
  auto kind = node.output(1) ? FactorKind::whole : FactorKind::pass;
  auto outer = add_dims(rule, {data[0], data[1]}, "nc", kind);
  std::copy(outer.begin(), outer.end(), rule.operands[0].begin());
  for (size_t r = 0; r < node.outputs.size(); ++r)
    if (node.outputs[r]) std::copy(outer.begin(), outer.end(), rule.results[r].begin());
  if (node.op_type.ends_with("AveragePool")) rule.partial(Reduction::sum, {0});
  // No partial maximum: a maximum over a window drops NaN, one over ranks does not.
  return rule;
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
                   .gradient = pooling_gradient(type),
                   .windows = !type.starts_with("Global")});
  return ops;
}

}  // namespace tessera::ops
