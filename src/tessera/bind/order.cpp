#include "tessera/bind/order.h"

#include <algorithm>
#include <set>

#include "tessera/bind/sources.h"
#include "tessera/bind/traits.h"
#include "tessera/mesh/group.h"
#include "tessera/mesh/queues.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::bind {
namespace {

/// Numbers the memories of values in the order of the first requests for them.
class MemoryNumbers {
 public:
  MemoryNumbers(const Values& values, const std::map<const Value*, const Value*>& over, const Destinations& direct,
                const device::MemoryLimit* limit)
      : values_(values), over_(over), direct_(direct), limit_(limit) {}

  int of(const Value* value) {
    const Value* root = values_.home(value);
    if (auto over = over_.find(root); over != over_.end()) root = over->second;
    auto [known, fresh] = numbers_.emplace(root, static_cast<int>(memories.size()));
    if (!fresh) return known->second;
    Memory& memory = memories.emplace_back();
    if (root->kind == ValueKind::result) {
      const size_t bytes = values_.type(root).bytes();
      if (limit_) limit_->require(bytes, root->name);
      if (!direct_.contains(root)) memory.bytes = bytes;
    }
    return known->second;
  }

  std::vector<Memory> memories;

 private:
  const Values& values_;
  const std::map<const Value*, const Value*>& over_;
  const Destinations& direct_;
  const device::MemoryLimit* limit_;
  std::map<const Value*, int> numbers_;
};

// Values that live across sections do not count: the order within one section cannot free their memory.
std::vector<Memory> kept_between(const std::vector<int>& section, const Tasks& of) {
  std::vector<std::set<int>> touched_in(of.memories.size());  // sections, by memory
  for (size_t g = 0; g < section.size(); ++g)
    for (const auto* memories : {&of.tasks[g].reads, &of.tasks[g].writes})
      for (int memory : *memories) touched_in[memory].insert(section[g]);
  std::vector<Memory> memories = of.memories;
  for (size_t m = 0; m < memories.size(); ++m) memories[m].kept |= touched_in[m].size() > 1;
  return memories;
}

std::vector<Action> order_by_sections(const Tasks& of, const std::vector<int>& section, int prefetch) {
  const std::vector<Memory> memories = kept_between(section, of);
  std::vector<Action> actions;
  for (size_t first = 0; first < section.size();) {
    size_t end = first;
    while (end < section.size() && section[end] == section[first]) ++end;
    const std::vector<Task> tasks(of.tasks.begin() + static_cast<long>(first),
                                  of.tasks.begin() + static_cast<long>(end));
    for (Action action : schedule(tasks, memories, prefetch)) {
      action.task += static_cast<int>(first);
      actions.push_back(action);
    }
    first = end;
  }
  return actions;
}

std::string queue_of_node(const Node& node, const Mesh& mesh) {
  return queue_of(parse_axes(spmd::read_collective(node, mesh).axes, mesh), mesh);
}

// The number of the queue of that name.
int number_of(const std::string& name, std::vector<std::string>& queues) {
  const auto number = static_cast<size_t>(std::find(queues.begin() + 1, queues.end(), name) - queues.begin());
  if (number == queues.size()) queues.push_back(name);
  return static_cast<int>(number);
}

}  // namespace

std::vector<int> Tasks::queue_of() const {
  std::vector<int> numbers;
  for (const Task& task : tasks) numbers.push_back(task.queue);
  return numbers;
}

PreparedCommunication prepare_communication(Rank& rank, const NodeGroup& group, const Sizes& sizes) {
  PreparedCommunication made;
  made.communication = rank.prepare_communication(
      group.bucket.empty() ? std::vector{group.root} : group.bucket,
      [&](std::string_view name) {
        made.asked.emplace(name);
        return std::optional(sizes.lookup(name));
      },
      made.info);
  return made;
}

Tasks tasks_of(const Subject& subject, const std::vector<NodeGroup>& groups, const Values& values,
               const std::vector<size_t>& scratch, const std::map<const Value*, const Value*>& over,
               const Destinations& direct) {
  MemoryNumbers numbers(values, over, direct, subject.rank->memory_limit());
  Tasks all;
  for (size_t g = 0; g < groups.size(); ++g) {
    const NodeGroup& group = groups[g];
    Task& task = all.tasks.emplace_back();
    task.communicates = is_communication(*group.root);
    const CollectiveTraits* collective = collective_of(*group.root);
    task.at_once = collective && collective->kind == Collective::barrier;
    task.message = collective && collective->message;
    if (task.communicates && subject.device().is_asynchronous())
      task.queue = number_of(queue_of_node(*group.root, subject.program.mesh), all.queues);
    task.in_place = takes_over_operand(*group.root);
    task.scratch = scratch[g];
    for (const Value* operand : group.inputs)
      if (operand && (operand->producer || operand->kind == ValueKind::input || operand->changing))
        task.reads.push_back(numbers.of(operand));
    for (const Value* result : group.outputs)
      if (result) task.writes.push_back(numbers.of(result));
  }
  const auto memory_of = [&](const Value* value) -> Memory& {
    const int number = numbers.of(value);
    return numbers.memories[number];
  };
  for (const Value* output : subject.graph().outputs) memory_of(output).kept = true;
  for (const auto& value : subject.graph().values())
    if (value->next) memory_of(value->next).kept = true;
  for (const spmd::Port& input : subject.program.inputs)
    if (const Box part = values.sizes().part(input.value); !is_in_input(subject.device(), part))
      memory_of(input.value).bytes = bytes_of(input.value->dtype(), part.count());
  all.memories = std::move(numbers.memories);
  return all;
}

std::vector<Action> order_of(const Tasks& tasks, const std::vector<NodeGroup>& groups, const Regions& regions,
                             const Options& options) {
  if (!options.overlap) return as_given(tasks.tasks);
  const bool is_pipeline =
      std::any_of(groups.begin(), groups.end(), [](const NodeGroup& group) { return group.root->seat.is_staged(); });
  if (is_pipeline && regions.empty()) return schedule_in_order(tasks.tasks, tasks.memories, options.prefetch);
  if (regions.empty()) return schedule(tasks.tasks, tasks.memories, options.prefetch);
  return order_by_sections(tasks, sections_of(regions, groups), options.prefetch);
}

Order in_order(const Tasks& tasks, const std::vector<NodeGroup>& groups, const Regions& regions,
               const Options& options) {
  std::vector<Action> actions = order_of(tasks, groups, regions, options);
  std::vector<Span> spans = spans_of(actions, groups.size());
  return {needs_of(tasks.tasks), std::move(actions), std::move(spans)};
}

}  // namespace tessera::bind
