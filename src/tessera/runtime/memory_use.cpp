#include "tessera/runtime/memory_use.h"

#include <map>
#include <set>
#include <string_view>

#include "tessera/ir/transplant.h"

namespace tessera::runtime {
namespace {

// By their global names, so that copies count as the first ones do.
std::set<std::string_view> forward_results(const spmd::Program& program) {
  std::set<std::string_view> names;
  if (program.outputs.empty() || !program.outputs.front().value) return names;
  for (const Node* node : makers_of(*program.graph, {program.outputs.front().value}))
    for (const Value* result : node->outputs)
      if (result) names.insert(program.name_of(result));
  return names;
}

}  // namespace

MemoryUse arena_use(const bind::MachineProgram& machine, const spmd::Program& program) {
  const std::set<std::string_view> forward = forward_results(program);
  // By action: what is needed from it on, and no longer needed before it.
  std::map<int, std::vector<std::pair<size_t, bool>>> changes;
  for (size_t b = 0; b < machine.buffers.size(); ++b) {
    changes[machine.buffers[b].first].emplace_back(b, true);
    changes[machine.buffers[b].last + 1].emplace_back(b, false);
  }
  MemoryUse now, most;
  for (const auto& [action, buffers] : changes) {
    for (const auto& [b, begins] : buffers) {
      const Value* value = (*machine.occupants)[b].value;
      const size_t bytes = machine.buffers[b].bytes;
      const auto count = [&](size_t& use) { use = begins ? use + bytes : use - bytes; };
      count(now.peak);
      if (value && value->producer) count(forward.contains(program.name_of(value)) ? now.activations : now.gradients);
    }
    if (now.peak > most.peak) most = now;
  }
  return most;
}

}  // namespace tessera::runtime
