#include "tessera/bind/frame.h"
#include "tessera/bind/traits.h"

/// The order of the steps.
namespace tessera::bind {

// Before the order, which must know what they need.
void Binding::prepare_communications() {
  const std::vector<NodeGroup>& groups = frame_->groups;
  for (size_t g = 0; g < groups.size(); ++g) machine_.steps.push_back(std::make_shared<Step>());
  frame_->asked.resize(groups.size());
  for (size_t g = 0; g < groups.size(); ++g)
    if (is_communication(*groups[g].root)) {
      prepare_communication_of(static_cast<int>(g));
      frame_->communicates = true;
    }
}

void Binding::prepare_communication_of(int step) {
  auto& asked = frame_->asked[step];
  const NodeGroup& group = frame_->groups[step];
  machine_.steps[step]->communication = rank_->prepare_communication(
      group.bucket.empty() ? std::vector{group.root} : group.bucket,
      [&](std::string_view name) {
        asked.emplace(name);
        return lookup(name);
      },
      machine_.steps[step]->info);
}

Binding::Tasks Binding::tasks() const {
  const std::vector<NodeGroup>& groups = frame_->groups;
  std::map<const Value*, int> numbers;
  Tasks result;
  std::vector<Memory>& memories = result.memories;
  auto number_of = [&](const Value* value) {
    const Value* root = home(value);
    if (auto over = frame_->over.find(root); over != frame_->over.end()) root = over->second;
    auto [known, fresh] = numbers.emplace(root, static_cast<int>(memories.size()));
    if (!fresh) return known->second;
    Memory& memory = memories.emplace_back();
    if (root->kind == ValueKind::result) {
      const size_t bytes = desc(root).bytes();
      if (const device::MemoryLimit* limit = rank_->memory_limit()) limit->require(bytes, root->name);
      if (!frame_->direct.contains(root)) memory.bytes = bytes;
    }
    return known->second;
  };
  std::vector<Task>& tasks = result.tasks;
  for (size_t g = 0; g < groups.size(); ++g) {
    const NodeGroup& group = groups[g];
    Task& task = tasks.emplace_back();
    task.communicates = is_communication(*group.root);
    const CollectiveTraits* collective = collective_of(*group.root);
    task.at_once = collective && collective->kind == Collective::barrier;
    task.in_place = takes_over_operand(*group.root);
    if (const auto& communication = machine_.steps[g]->communication) task.scratch = communication->scratch_bytes();
    for (const Value* operand : group.inputs)
      if (operand && (operand->producer || operand->kind == ValueKind::input || operand->changing))
        task.reads.push_back(number_of(operand));
    for (const Value* result : group.outputs)
      if (result) task.writes.push_back(number_of(result));
  }
  for (const Value* output : program_.graph->outputs) memories[number_of(output)].kept = true;
  for (const auto& value : program_.graph->values())
    if (value->next) memories[number_of(value->next)].kept = true;
  for (const spmd::Port& input : program_.inputs)
    if (const Box part = box(input.value); !lies_in_input(part))
      memories[number_of(input.value)].bytes = bytes_of(input.value->dtype(), part.count());
  return result;
}

std::vector<Action> Binding::order(const Tasks& of) const {
  if (!options_.overlap) return as_given(of.tasks);
  return frame_->flow.empty() ? schedule(of.tasks, of.memories, options_.prefetch) : order_by_sections(of);
}

}  // namespace tessera::bind
