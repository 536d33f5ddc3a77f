#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/bind/frame.h"
#include "tessera/bind/row_pieces.h"
#include "tessera/bind/traits.h"

/// The steps: kernels prepared on bound extents, with the places of their operands.
namespace tessera::bind {

// In running order, since a result may take over the memory of an operand that nobody needs any more.
void Binding::prepare_steps() {
  Frame& frame = *frame_;
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
      prepare(frame.groups[step], frame.spans[step], *machine_.steps[step]);
      info = machine_.steps[step]->info;
      if (phase == Phase::start) ++under_way;
    }
  }
  machine_.infos = std::move(infos);
  for (const Value* output : program_.graph->outputs) locate(output);
  place_exchanges();
  if (options_.keep_all)
    for (const auto& [value, view] : frame.views) locate(value);
}

void Binding::prepare(const NodeGroup& group, const Span& span, Step& made) {
  const Node& node = *group.root;
  require_windows(node);
  kernels::PrepareContext context{node, {}, {}, {}, rank_->threads(), group.followers};
  for (const Value* operand : group.inputs) {
    context.inputs.push_back(desc(operand));
    made.inputs.push_back(operand && operand->kind != ValueKind::state ? locate(operand) : Location{});
  }
  for (const Value* result : group.outputs) context.outputs.push_back(desc(result));
  std::vector<int> in_place;  // operands whose memory the first result may take over
  size_t scratch = 0;
  if (is_communication(node)) {
    settle_operands(group, made, context);
    if (takes_over_operand(node)) in_place = {0};
    scratch = made.communication->scratch_bytes();
  } else {
    made.info.name = !node.name.empty() || !node.output() ? node.name : node.output()->name;
    made.info.op = node.op_type;
    for (const kernels::Follower& follower : group.followers) made.info.op += "+" + follower.node->op_type;
    in_place = prepare_kernel(group, made, context);
    scratch = made.kernel->scratch_bytes();
  }
  for (const Location& operand : made.inputs)
    made.last_uses.push_back(operand.where == Where::arena ? machine_.buffers[operand.index].last : -1);
  if (before_) made.last_uses = before_->last_uses;
  place_results(group, span, in_place, context, made);
  if (before_) {
    made.scratch = before_->scratch;
    differs_ |= (scratch > 0) != (made.scratch >= 0);
    if (made.scratch >= 0) machine_.buffers[made.scratch].bytes = scratch;
  } else if (scratch > 0) {
    made.scratch = new_buffer(scratch, span);
  }
  for (const Location& result : made.outputs) made.writes_state |= result.where == Where::state;
  made.operands = std::move(context.inputs);
  made.results = std::move(context.outputs);
  made.in.resize(made.inputs.size());
  made.out.resize(group.outputs.size());
}

// Fills in the operands that are states, and what is known of all operands now.
void Binding::settle_operands(const NodeGroup& group, Step& made, kernels::PrepareContext& context) {
  context.known.resize(group.inputs.size(), nullptr);
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const Value* operand = group.inputs[i];
    if (operand && made.inputs[i].where == Where::none) made.inputs[i] = locate(operand);
    context.known[i] = known_elements(operand, made.inputs[i]);
  }
}

// Returns the operands whose memory the first result may take over.
std::vector<int> Binding::prepare_kernel(const NodeGroup& group, Step& made, kernels::PrepareContext& context) {
  const Node& node = *group.root;
  std::optional<Node> packed_node = pack_operand(group, made, context);
  settle_operands(group, made, context);
  const kernels::Library& library = rank_->device().kernels();
  const Node& run = packed_node ? *packed_node : node;
  const kernels::KernelEntry* entry = library.find(run.op_type, run.domain);
  if (!entry)
    fail("kernel", "{}: the device '{}' has no kernel for {}{}{}", node.label(), rank_->device().name(), node.domain,
         node.domain.empty() ? "" : ".", node.op_type);
  kernels::PrepareContext of_packed{run,           context.inputs,  context.outputs,
                                    context.known, context.threads, context.followers};
  if (!entry->blocks)
    for (auto* descs : {&of_packed.inputs, &of_packed.outputs})
      for (kernels::TensorDesc& desc : *descs)
        if (desc.block) desc = {desc.dtype, desc.stored_dims()};
  if (made.meanwhile && rank_->advances_by_tests() && !rank_->device().is_asynchronous())
    made.kernel = in_row_pieces(*entry, of_packed, [&rank = *rank_] { rank.advance(); });
  if (!made.kernel) {
    const auto prepared = [&] { return library.prepare(*entry, of_packed); };
    // What is bound lives as long as this binding.
    const bool of_rank = std::none_of(group.inputs.begin(), group.inputs.end(), [](const Value* operand) {
      return operand && operand->kind == ValueKind::expression;
    });
    made.kernel = of_rank && !group.outputs.empty() && group.outputs[0]
                      ? rank_->kernels().kernel(group.outputs[0], of_packed, prepared)
                      : prepared();
  }
  if (int operand = made.kernel->in_place_operand(); operand >= 0) return {operand};
  if (group.followers.empty()) return entry->in_place;
  std::vector<int> in_place(entry->elementwise ? group.inputs.size() : 0);
  std::iota(in_place.begin(), in_place.end(), 0);
  return in_place;
}

}  // namespace tessera::bind
