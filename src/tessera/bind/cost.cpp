#include <algorithm>

#include "tessera/bind/frame.h"
#include "tessera/bind/traits.h"
#include "tessera/ops/op.h"

namespace tessera::bind {

Cost Binding::cost_of(const NodeGroup& group, const Step& made) const {
  Cost cost;
  const ops::OpDef* root = ops::find_op(group.root->op_type, group.root->domain);
  for (const kernels::TensorDesc& result : made.results) cost.written += result.present() ? result.bytes() : 0;
  for (size_t i = 0; i < made.operands.size(); ++i) {
    const kernels::TensorDesc& operand = made.operands[i];
    if (!operand.present() || !ops::reads_elements(*group.root, i)) continue;
    const bool is_table = root && root->table == i;  // only the rows that are looked up
    cost.read += is_table ? std::min(operand.bytes(), cost.written) : operand.bytes();
  }
  if (const CollectiveTraits* collective = collective_of(*group.root)) {
    const auto divided = [](size_t bytes, int64_t members) { return bytes / static_cast<size_t>(members); };
    cost.received = received(collective->kind, cost.read, cost.written, made.info.members, divided);
    return cost;
  }
  const auto count = [&](const Node& node) {
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    if (op && op->flops)
      cost.flops +=
          static_cast<double>(op->flops(node).evaluate([this](std::string_view name) { return lookup(name); }));
  };
  count(group.own ? *group.own->outputs[0]->producer : *group.root);  // as the program has it
  for (const kernels::Follower& follower : group.followers) count(*follower.node);
  return cost;
}

Cost MachineProgram::total() const {
  Cost sum;
  for (const auto& step : steps) {
    sum.flops += step->cost.flops;
    sum.read += step->cost.read;
    sum.written += step->cost.written;
    sum.received += step->cost.received;
  }
  return sum;
}

}  // namespace tessera::bind
