#include "tessera/bind/arena.h"

#include <algorithm>

namespace tessera::bind {

size_t Arena::add(size_t bytes, const Span& span, Occupant occupant) {
  buffers_.push_back({bytes, span.begin, span.end});
  occupants_.push_back(std::move(occupant));
  return buffers_.size() - 1;
}

Location Arena::add_place(size_t bytes, const Span& span, Occupant occupant) {
  return {Location::Where::arena, add(bytes, span, std::move(occupant)), nullptr, 0};
}

void Arena::extend(size_t buffer, int action) {
  buffers_[buffer].last = std::max(buffers_[buffer].last, action);
}

void Arena::live_together(size_t one, size_t other) {
  Lifetime &a = buffers_[one], &b = buffers_[other];
  a.first = b.first = std::min(a.first, b.first);
  a.last = b.last = std::max(a.last, b.last);
}

void place_buffers(MachineProgram& machine, std::vector<Lifetime> buffers) {
  machine.buffers = std::move(buffers);
  MemoryPlan plan = plan_memory(machine.buffers);
  machine.offsets = std::move(plan.offsets);
  machine.arena_bytes = plan.bytes;
  machine.staging_bytes = 0;
  for (auto* copies : {&machine.inputs, &machine.outputs})
    for (HostCopy& copy : *copies) {
      if (!copy.staged) continue;
      copy.staging = machine.staging_bytes;
      machine.staging_bytes += copy.bytes;
    }
}

std::vector<device::NamedBytes> pieces_at_peak(const MachineProgram& machine) {
  std::vector<device::NamedBytes> all;
  for (const size_t b : alive_at_peak(machine.buffers))
    all.push_back({(*machine.occupants)[b].name, machine.buffers[b].bytes});
  if (machine.staging_bytes > 0) all.push_back({"the host's copies of inputs and outputs", machine.staging_bytes});
  return all;
}

}  // namespace tessera::bind
