#include "tessera/bind/states.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ir/flow.h"

namespace tessera::bind {
namespace {

/// The uses of a state's memory: groups that read it, in running order, and values that are read after the run.
struct StateReaders {
  std::map<const Value*, std::vector<int>> groups;  ///< by state
  std::map<const Value*, int> made_by;              ///< for each value that owns memory, the group that makes it
  std::set<const Value*> after;                     ///< states in whose memory outputs, or next values of others, are
};

StateReaders readers_of_states(const Graph& graph, const std::vector<NodeGroup>& groups, const Values& values,
                               const std::map<const Value*, size_t>& slot_of) {
  StateReaders readers;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const Value* operand : groups[g].inputs)
      if (operand && slot_of.contains(values.home(operand)))
        readers.groups[values.home(operand)].push_back(static_cast<int>(g));
    for (const Value* result : groups[g].outputs)
      if (result) readers.made_by.emplace(values.home(result), static_cast<int>(g));
  }
  for (const Value* output : graph.outputs) readers.after.insert(values.home(output));
  for (const auto& value : graph.values())
    if (value->next && value->next != value.get()) readers.after.insert(values.home(value->next));
  return readers;
}

// Whether the group's kernel reads each element of the state before it writes the element of `next` there.
bool reads_in_place(const kernels::Library& library, const NodeGroup& group, const Values& values, const Value* state,
                    const Value* next) {
  const kernels::KernelEntry* entry = library.find(group.root->op_type, group.root->domain);
  if (!entry || group.packed || group.root->domain == spmd::kCommDomain) return false;
  const auto made = std::find_if(group.outputs.begin(), group.outputs.end(),
                                 [&](const Value* result) { return result && values.home(result) == next; });
  if (made == group.outputs.end() || (group.followers.empty() && group.outputs.size() != 1)) return false;
  const kernels::TensorDesc wanted = values.type(*made);
  const auto result = static_cast<size_t>(made - group.outputs.begin());
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const Value* operand = group.inputs[i];
    if (!operand || values.home(operand) != state) continue;
    const bool element_by_element = group.followers.empty() ? std::find(entry->in_place.begin(), entry->in_place.end(),
                                                                        static_cast<int>(i)) != entry->in_place.end()
                                                            : entry->elementwise && is_read_before(group, i, result);
    const kernels::TensorDesc given = values.type(operand);
    if (!element_by_element || operand != state || given.dims != wanted.dims || given.bytes() != wanted.bytes() ||
        !wanted.strides.empty())
      return false;
  }
  return true;
}

// Whether all readers of the state come before the group that makes `next`, or are this group, and it may overwrite
// what it reads. (Steps may be reordered later, but not steps that use the same memory.)
bool can_write_over(const kernels::Library& library, const std::vector<NodeGroup>& groups, const Values& values,
                    const StateReaders& readers, const Value* state, const Value* next) {
  if (readers.after.contains(state)) return false;
  const int maker = readers.made_by.at(next);
  const auto known = readers.groups.find(state);
  if (known == readers.groups.end()) return true;
  return std::all_of(known->second.begin(), known->second.end(), [&](int reader) {
    return reader < maker || (reader == maker && reads_in_place(library, groups[maker], values, state, next));
  });
}

// Whether a result fills a slot at all sizes of the inputs.
bool always_fills(const Subject& subject, const Values& values, const Value* result, size_t bytes) {
  return !values.is_blocked(result) && values.type(result).bytes() == bytes &&
         std::all_of(result->shape().begin(), result->shape().end(), [&](const Expr& extent) {
           return bind_rank(extent, subject.program.mesh, subject.rank->coordinates()).is_constant();
         });
}

}  // namespace

PlacedStates place_states(const Subject& subject, const std::vector<NodeGroup>& groups, const Values& values,
                          const Destinations& taken) {
  PlacedStates states;
  const Graph& graph = subject.graph();
  Rank& rank = *subject.rank;
  for (const auto& value : graph.values())
    if (value->kind == ValueKind::state && value->changing) {
      states.slot_of.emplace(value.get(), states.slots.size());
      states.slots.push_back(&rank.slot(value.get()));
    }
  if (states.slots.empty()) return states;
  const StateReaders readers = readers_of_states(graph, groups, values, states.slot_of);
  for (const auto& value : graph.values()) {
    if (!value->next || value->next == value.get()) continue;
    const size_t slot = states.slot_of.at(value.get());
    const size_t bytes = states.slots[slot]->bytes;
    const Value* root = values.home(value->next);
    check(values.type(value->next).bytes() == bytes,
          fmt::format("the next value of '{}' has its extents", value->name));
    const bool is_taken = taken.contains(root) || states.direct.contains(root);
    const bool is_of_loop = root->producer && root->producer->domain == flow::kDomain;  // other iterations also read it
    if (subject.options.keep_all || root->kind != ValueKind::result || is_taken || is_of_loop ||
        !always_fills(subject, values, root, bytes)) {
      rank.need_spare(*states.slots[slot]);
      states.next.push_back({slot, value->next});
    } else if (can_write_over(subject.device().kernels(), groups, values, readers, value.get(), root)) {
      states.direct[root] = {Location::Where::state, slot, nullptr, 0};
      states.over.emplace(root, value.get());
    } else {
      rank.need_spare(*states.slots[slot]);
      states.direct[root] = {Location::Where::next, slot, nullptr, 0};
      states.next.push_back({slot, nullptr});
    }
  }
  return states;
}

std::vector<Exchange> exchanges_of(const std::vector<NextValue>& next, const Values& values, Places& places) {
  std::vector<Exchange> exchanges;
  for (const NextValue& value : next)
    exchanges.push_back(
        {value.slot, value.copied != nullptr, value.copied ? places.locate(values, value.copied) : Location{}});
  return exchanges;
}

}  // namespace tessera::bind
