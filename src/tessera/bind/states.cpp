#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/bind/frame.h"

/// Where the states of a plan that change lie, and where their next values are made.
namespace tessera::bind {

// Who touches a state's memory: groups that read it, in running order, and what is read after the run.
struct Binding::StateReaders {
  std::map<const Value*, std::vector<int>> groups;  ///< by state
  std::map<const Value*, int> made_by;              ///< by the value in whose memory a result lies: its group
  std::set<const Value*> after;                     ///< states that outputs, or next values of others, lie in
};

Binding::StateReaders Binding::readers_of_states() const {
  StateReaders readers;
  for (size_t g = 0; g < frame_->groups.size(); ++g) {
    for (const Value* operand : frame_->groups[g].inputs)
      if (operand && frame_->slot_of.contains(home(operand)))
        readers.groups[home(operand)].push_back(static_cast<int>(g));
    for (const Value* result : frame_->groups[g].outputs)
      if (result) readers.made_by.emplace(home(result), static_cast<int>(g));
  }
  for (const Value* output : program_.graph->outputs) readers.after.insert(home(output));
  for (const auto& value : program_.graph->values())
    if (value->next && value->next != value.get()) readers.after.insert(home(value->next));
  return readers;
}

// Gives each state that changes its slot, and decides where its next value is made: over the value that it has, if
// nobody reads that any more by then; else aside, and the two change places after the run. What is read after the run,
// or is a view, is copied.
void Binding::place_states() {
  Frame& frame = *frame_;
  const Graph& graph = *program_.graph;
  for (const auto& value : graph.values())
    if (value->kind == ValueKind::state && value->changing) {
      frame.slot_of.emplace(value.get(), machine_.slots.size());
      machine_.slots.push_back(&rank_->slot(value.get()));
    }
  if (machine_.slots.empty()) return;
  const StateReaders readers = readers_of_states();
  for (const auto& value : graph.values()) {
    if (!value->next || value->next == value.get()) continue;
    const size_t slot = frame.slot_of.at(value.get());
    const Value* root = home(value->next);
    check(desc(value->next).bytes() == machine_.slots[slot]->bytes,
          fmt::format("the next value of '{}' has its extents", value->name));
    // At other sizes of the inputs, too.
    const bool dense = !frame.blocked.contains(root) && desc(root).bytes() == machine_.slots[slot]->bytes &&
                       std::all_of(root->shape().begin(), root->shape().end(), [&](const Expr& extent) {
                         return bind_rank(extent, program_.mesh, rank_->coordinates()).is_constant();
                       });
    const bool is_of_loop = root->producer && root->producer->domain == flow::kDomain;  // other iterations read, too
    if (options_.keep_all || root->kind != ValueKind::result || frame.direct.contains(root) || !dense || is_of_loop) {
      rank_->need_spare(*machine_.slots[slot]);
      frame.copied.emplace_back(slot, value->next);
    } else if (can_write_over(value.get(), root, readers)) {
      frame.direct[root] = {Where::state, slot, nullptr, 0};
      frame.over.emplace(root, value.get());
    } else {
      rank_->need_spare(*machine_.slots[slot]);
      frame.direct[root] = {Where::next, slot, nullptr, 0};
      frame.copied.emplace_back(slot, nullptr);
    }
  }
}

// The exchanges after a run, where the values that are copied have their places.
void Binding::place_exchanges() {
  machine_.exchanges.clear();
  for (const auto& [slot, next] : frame_->copied)
    machine_.exchanges.push_back({slot, next != nullptr, next ? locate(next) : Location{}});
}

// Whether all that read the state come before the group that makes `next`, or are that group, which may write over what
// it reads. (The order of steps may change later, but not that of those that touch one memory.)
bool Binding::can_write_over(const Value* state, const Value* next, const StateReaders& readers) const {
  if (readers.after.contains(state)) return false;
  const int maker = readers.made_by.at(next);
  const auto known = readers.groups.find(state);
  if (known == readers.groups.end()) return true;
  return std::all_of(known->second.begin(), known->second.end(), [&](int reader) {
    return reader < maker || (reader == maker && reads_in_place(frame_->groups[maker], state, next));
  });
}

// Whether the group's kernel reads each element of the state before it writes the element of `next` there.
bool Binding::reads_in_place(const NodeGroup& group, const Value* state, const Value* next) const {
  const kernels::KernelEntry* entry = rank_->device().kernels().find(group.root->op_type, group.root->domain);
  if (!entry || group.packed || group.root->domain == spmd::kCommDomain) return false;
  const auto made = std::find_if(group.outputs.begin(), group.outputs.end(),
                                 [&](const Value* result) { return result && home(result) == next; });
  if (made == group.outputs.end() || (group.followers.empty() && group.outputs.size() != 1)) return false;
  const kernels::TensorDesc wanted = desc(*made);
  const auto result = static_cast<size_t>(made - group.outputs.begin());
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const Value* operand = group.inputs[i];
    if (!operand || home(operand) != state) continue;
    const bool element_by_element = group.followers.empty() ? std::find(entry->in_place.begin(), entry->in_place.end(),
                                                                        static_cast<int>(i)) != entry->in_place.end()
                                                            : entry->elementwise && is_read_before(group, i, result);
    const kernels::TensorDesc given = desc(operand);
    if (!element_by_element || operand != state || given.dims != wanted.dims || given.bytes() != wanted.bytes() ||
        !wanted.strides.empty())
      return false;
  }
  return true;
}

}  // namespace tessera::bind
