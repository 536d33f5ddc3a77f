#include "tessera/bind/steps.h"

#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/bind/traits.h"

namespace tessera::bind {
namespace {

// Kernels without support for blocks get the extents as stored.
void tell_stored_extents(kernels::PrepareContext& context) {
  for (auto* descs : {&context.inputs, &context.outputs})
    for (kernels::TensorDesc& desc : *descs)
      if (desc.block) desc = {desc.dtype, desc.stored_dims()};
}

std::shared_ptr<kernels::Kernel> prepare_kernel(Rank& rank, const NodeGroup& group, const kernels::KernelEntry& entry,
                                                const kernels::PrepareContext& context) {
  const auto prepared = [&] { return rank.device().kernels().prepare(entry, context); };
  // The elements of expressions live only as long as the binding, so kernels that may know them are not cached.
  const bool of_rank = std::none_of(group.inputs.begin(), group.inputs.end(), [](const Value* operand) {
    return operand && operand->kind == ValueKind::expression;
  });
  return of_rank && !group.outputs.empty() && group.outputs[0]
             ? rank.kernels().kernel(group.outputs[0], context, prepared)
             : prepared();
}

std::vector<int> operands_to_take_over(const kernels::Kernel& kernel, const kernels::KernelEntry& entry,
                                       const NodeGroup& group) {
  if (int operand = kernel.in_place_operand(); operand >= 0) return {operand};
  if (group.followers.empty()) return entry.in_place;
  if (!entry.elementwise) return {};
  std::vector<int> all(group.inputs.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void add_kernel(const StepSources& of, int step, Step& made) {
  const NodeGroup& group = of.groups[step];
  Rank& rank = *of.subject.rank;
  const Node* packed = of.packed.node_of(step);
  const Node& node = packed ? *packed : *group.root;
  const kernels::KernelEntry* entry = rank.device().kernels().find(node.op_type, node.domain);
  if (!entry)
    fail("kernel", "{}: the device '{}' has no kernel for {}{}{}", group.root->label(), rank.device().name(),
         group.root->domain, group.root->domain.empty() ? "" : ".", group.root->op_type);
  kernels::PrepareContext context{node, made.operands, made.results, {}, rank.threads(), group.followers};
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const Value* value = group.inputs[i];
    const bool known = KnownElements::may_know(value) && !of.packed.find(step, i);  // packed bytes are not known
    context.known.push_back(known ? of.known.of(value, of.place_of_operand(step, i), of.values.sizes()) : nullptr);
  }
  if (!entry->blocks) tell_stored_extents(context);
  made.kernel = prepare_kernel(rank, group, *entry, context);
  made.in_place = operands_to_take_over(*made.kernel, *entry, group);
}

}  // namespace

Location StepSources::place_of_operand(int step, size_t index) const {
  if (const PackedWeight* weight = packed.find(step, index)) return weight->place;
  const Value* operand = groups[step].inputs[index];
  return operand ? places.locate(values, operand) : Location{};
}

Step prepare_step(const StepSources& of, int step, PreparedCommunication communication) {
  const NodeGroup& group = of.groups[step];
  const Node& node = *group.root;
  Step made;
  made.communication = std::move(communication.communication);
  made.info = std::move(communication.info);
  made.info.seat = node.seat;
  of.values.sizes().require_windows(node);
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const PackedWeight* packed = of.packed.find(step, i);
    made.operands.push_back(packed ? packed->type : of.values.type(group.inputs[i]));
  }
  for (const Value* result : group.outputs) made.results.push_back(of.values.type(result));
  made.in.resize(group.inputs.size());
  made.out.resize(group.outputs.size());
  if (is_communication(node)) {
    if (takes_over_operand(node)) {  // each result takes over its own operand
      made.in_place.resize(std::max<size_t>(group.bucket.size(), 1));
      std::iota(made.in_place.begin(), made.in_place.end(), 0);
    }
    return made;
  }
  made.info.name = !node.name.empty() || !node.output() ? node.name : node.output()->name;
  made.info.op = node.op_type;
  for (const kernels::Follower& follower : group.followers) made.info.op += "+" + follower.node->op_type;
  add_kernel(of, step, made);
  return made;
}

// In running order.
std::vector<std::shared_ptr<Step>> prepare_steps(const StepSources& of, const std::vector<Action>& actions,
                                                 const std::vector<PreparedCommunication>& communications) {
  std::vector<std::shared_ptr<Step>> steps(of.groups.size());
  for (const auto& [step, phase] : actions)
    if (phase != Phase::wait) steps[step] = std::make_shared<Step>(prepare_step(of, step, communications[step]));
  return steps;
}

std::vector<StepInfo> infos_of(const Order& order, const std::vector<std::shared_ptr<Step>>& steps) {
  std::vector<StepInfo> infos;
  for (const auto& [step, phase] : order.actions) {
    infos.push_back(steps[step]->info);
    if (phase == Phase::wait) infos.back().started = order.spans[step].begin;
  }
  return infos;
}

}  // namespace tessera::bind
