#include "tessera/passes/node_work.h"

#include "tessera/mesh/group.h"
#include "tessera/ops/op.h"
#include "tessera/spmd/collective_attributes.h"

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

double seconds_of(const Node& node, const spmd::Program& program, const cost::Prices& prices) {
  const std::optional<Collective> kind = spmd::communication_of(node);
  if (!kind) return prices.kernel(work_of(node, program.hints));
  const Value* whole = traits_of(*kind).block == BlockSide::operand ? node.output(0) : node.input(0);
  if (!whole) return 0;
  const double bytes =
      spmd::hinted(product(whole->shape()), program.hints) * static_cast<double>(bits_of(whole->dtype())) / 8;
  return prices.collective(*kind, parse_axes(spmd::read_collective(node, program.mesh).axes, program.mesh), bytes);
}

double cost_of(const Node& node, const spmd::Program& program, const cost::Prices* prices) {
  constexpr double kFlopsPerByte = 10, kBytesPerLinkByte = 10;
  if (prices) return seconds_of(node, program, *prices);
  const cost::KernelWork work = work_of(node, program.hints);
  return work.bytes * (node.domain == spmd::kCommDomain ? kBytesPerLinkByte : 1) + work.flops / kFlopsPerByte;
}

}  // namespace tessera::passes
