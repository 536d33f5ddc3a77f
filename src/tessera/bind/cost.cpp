#include "tessera/bind/cost.h"

#include <algorithm>
#include <set>

#include "tessera/bind/traits.h"
#include "tessera/ops/op.h"

namespace tessera::bind {

Expr flops_of(const NodeGroup& group) {
  Expr sum;
  const auto count = [&](const Node& node) {
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    if (op && op->flops) sum = sum + op->flops(node);
  };
  count(group.own ? *group.own->outputs[0]->producer : *group.root);  // the program's own node
  for (const kernels::Follower& follower : group.followers) count(*follower.node);
  return sum;
}

Cost cost_of(const NodeGroup& group, const Step& made, int64_t flops) {
  Cost cost;
  cost.flops = static_cast<double>(flops);
  for (const kernels::TensorDesc& result : made.results) cost.written += result.present() ? result.bytes() : 0;
  const ops::OpDef* root = ops::find_op(group.root->op_type, group.root->domain);
  const CollectiveTraits* collective = collective_of(*group.root);
  // Other operands of a message name its peer and its shape.
  const bool is_message = collective && collective->message;
  const size_t moved = !is_message ? made.operands.size() : collective->kind == Collective::send ? 1 : 0;
  std::set<const Value*> seen;
  for (size_t i = 0; i < std::min(moved, made.operands.size()); ++i) {
    const kernels::TensorDesc& operand = made.operands[i];
    if (!operand.present() || !seen.insert(group.inputs[i]).second || !ops::reads_elements(*group.root, i)) continue;
    const bool is_table = root && root->table == i;
    cost.read += is_table ? std::min(operand.bytes(), cost.written) : operand.bytes();
  }
  if (collective) {
    const auto divided = [](size_t bytes, int64_t members) { return bytes / static_cast<size_t>(members); };
    const bool gives = collective->root == RootRole::gives && made.info.is_root;
    if (gives || cost.written == 0)
      cost.sent = cost.read;
    else
      cost.received = received(collective->kind, cost.read, cost.written, made.info.members, divided);
  }
  return cost;
}

Cost MachineProgram::total() const {
  Cost sum;
  for (const auto& step : steps) {
    sum.flops += step->cost.flops;
    sum.read += step->cost.read;
    sum.written += step->cost.written;
    sum.received += step->cost.received;
    sum.sent += step->cost.sent;
  }
  return sum;
}

}  // namespace tessera::bind
