#include "tessera/passes/node_work.h"

#include "tessera/ops/op.h"

namespace tessera::passes {

cost::KernelWork work_of(const Node& node, const std::map<std::string, int64_t, std::less<>>& hints) {
  cost::KernelWork work;
  work.signature = node.op_type;
  const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
  if (op && op->flops) work.flops = spmd::hinted(ops::flops_of(node), hints);
  double elements = 0;
  bool typed = false;
  for (const auto* values : {&node.inputs, &node.outputs})
    for (const Value* value : *values) {
      if (!value || !value->has_shape()) continue;
      const double own = spmd::hinted(product(value->shape()), hints);
      elements += own;
      work.bytes += own * static_cast<double>(bits_of(value->dtype())) / 8;
      if (!typed && is_float(value->dtype())) work.dtype = value->dtype();
      typed = typed || is_float(value->dtype());
    }
  const Value* result = node.outputs.empty() ? nullptr : node.outputs[0];
  if (result && result->has_shape() && !result->shape().empty())
    cost::add_extents(work, elements, spmd::hinted(product(result->shape()), hints),
                      spmd::hinted(result->shape().back(), hints));
  return work;
}

}  // namespace tessera::passes
