#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/bind/frame.h"
#include "tessera/bind/row_pieces.h"
#include "tessera/bind/traits.h"

/// The steps: kernels prepared on bound extents.
namespace tessera::bind {

// In running order, since kernels beside a communication may be others.
void Binding::prepare_steps() {
  const Frame& frame = *frame_;
  auto infos = std::make_shared<std::vector<StepInfo>>(frame.actions.size());
  int under_way = 0;  // communications
  for (size_t a = 0; a < frame.actions.size(); ++a) {
    const auto [step, phase] = frame.actions[a];
    StepInfo& info = (*infos)[a];
    if (phase == Phase::wait) {
      info = machine_.steps[step]->info;
      info.started = frame.spans[step].begin;
      --under_way;
    } else {
      machine_.steps[step]->meanwhile = under_way > 0;
      prepare(step);
      info = machine_.steps[step]->info;
      if (phase == Phase::start) ++under_way;
    }
  }
  machine_.infos = std::move(infos);
}

void Binding::prepare(int step) {
  const NodeGroup& group = frame_->groups[step];
  Step& made = *machine_.steps[step];
  const Node& node = *group.root;
  require_windows(node);
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const PackedWeight* packed = packed_operand(step, i);
    made.operands.push_back(packed ? packed->desc : desc(group.inputs[i]));
  }
  for (const Value* result : group.outputs) made.results.push_back(desc(result));
  made.in.resize(group.inputs.size());
  made.out.resize(group.outputs.size());
  if (is_communication(node)) {
    if (takes_over_operand(node)) {  // each result its own operand
      made.in_place.resize(std::max<size_t>(group.bucket.size(), 1));
      std::iota(made.in_place.begin(), made.in_place.end(), 0);
    }
    return;
  }
  made.info.name = !node.name.empty() || !node.output() ? node.name : node.output()->name;
  made.info.op = node.op_type;
  for (const kernels::Follower& follower : group.followers) made.info.op += "+" + follower.node->op_type;
  prepare_kernel(step);
}

void Binding::prepare_kernel(int step) {
  const NodeGroup& group = frame_->groups[step];
  Step& made = *machine_.steps[step];
  const PackedWeight* packed = packed_operand(step, 1);
  const Node& node = packed ? packed->node : *group.root;
  const kernels::Library& library = rank_->device().kernels();
  const kernels::KernelEntry* entry = library.find(node.op_type, node.domain);
  if (!entry)
    fail("kernel", "{}: the device '{}' has no kernel for {}{}{}", group.root->label(), rank_->device().name(),
         group.root->domain, group.root->domain.empty() ? "" : ".", group.root->op_type);
  kernels::PrepareContext context{node, made.operands, made.results, {}, rank_->threads(), group.followers};
  for (size_t i = 0; i < group.inputs.size(); ++i) context.known.push_back(known_elements(step, i));
  if (!entry->blocks)
    for (auto* descs : {&context.inputs, &context.outputs})
      for (kernels::TensorDesc& desc : *descs)
        if (desc.block) desc = {desc.dtype, desc.stored_dims()};
  if (made.meanwhile && rank_->advances_by_tests() && !rank_->device().is_asynchronous())
    made.kernel = in_row_pieces(*entry, context, [&rank = *rank_] { rank.advance(); });
  if (!made.kernel) {
    const auto prepared = [&] { return library.prepare(*entry, context); };
    // What is bound lives as long as this binding.
    const bool of_rank = std::none_of(group.inputs.begin(), group.inputs.end(), [](const Value* operand) {
      return operand && operand->kind == ValueKind::expression;
    });
    made.kernel = of_rank && !group.outputs.empty() && group.outputs[0]
                      ? rank_->kernels().kernel(group.outputs[0], context, prepared)
                      : prepared();
  }
  if (int operand = made.kernel->in_place_operand(); operand >= 0) {
    made.in_place = {operand};
  } else if (group.followers.empty()) {
    made.in_place = entry->in_place;
  } else if (entry->elementwise) {
    made.in_place.resize(group.inputs.size());
    std::iota(made.in_place.begin(), made.in_place.end(), 0);
  }
}

}  // namespace tessera::bind
