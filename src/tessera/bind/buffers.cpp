#include <fmt/format.h>

#include <algorithm>

#include "tessera/bind/frame.h"

/// The memory of the arena: who needs a buffer for how long, and where it lies.
namespace tessera::bind {

void Binding::note_uses() {
  const Graph& graph = *program_.graph;
  const std::vector<NodeGroup>& groups = frame_->groups;
  auto& uses = frame_->uses;
  for (size_t g = 0; g < groups.size(); ++g)
    for (const Value* operand : groups[g].inputs)
      if (operand) uses[home(operand)].push_back(frame_->spans[g]);
  const int end = static_cast<int>(frame_->actions.size());
  for (const Value* output : graph.outputs) uses[home(output)].push_back({end, end});
  for (const auto& value : graph.values()) {
    if (value->next) uses[home(value->next)].push_back({end, end});
    if (options_.keep_all) uses[home(value.get())].push_back({end, end});
  }
  note_uses_by_later_iterations();
}

// The action that is the last use of a value; -1: it has none.
int Binding::last_use(const Value* value) const {
  int last = -1;
  if (auto uses = frame_->uses.find(home(value)); uses != frame_->uses.end())
    for (const Span& use : uses->second) last = std::max(last, use.end);
  return last;
}

int Binding::new_buffer(size_t bytes, const Span& span, Occupant occupant) {
  machine_.buffers.push_back({bytes, span.begin, span.end});
  frame_->occupants.push_back(std::move(occupant));
  return static_cast<int>(machine_.buffers.size()) - 1;
}

void Binding::note_occupants() {
  machine_.occupants = std::make_shared<const std::vector<Occupant>>(std::move(frame_->occupants));
}

void Binding::place_buffers() {
  MemoryPlan plan = plan_memory(machine_.buffers);
  machine_.offsets = std::move(plan.offsets);
  machine_.arena_bytes = plan.bytes;
  machine_.staging_bytes = 0;
  for (auto* copies : {&machine_.inputs, &machine_.outputs})
    for (HostCopy& copy : *copies) {
      if (!copy.staged) continue;
      copy.staging = machine_.staging_bytes;
      machine_.staging_bytes += copy.bytes;
    }
}

std::vector<device::NamedBytes> Binding::pieces() const {
  std::vector<device::NamedBytes> all;
  for (const size_t b : alive_at_peak(machine_.buffers))
    all.push_back({(*machine_.occupants)[b].name, machine_.buffers[b].bytes});
  if (machine_.staging_bytes > 0) all.push_back({"the host's copies of inputs and outputs", machine_.staging_bytes});
  return all;
}

}  // namespace tessera::bind
