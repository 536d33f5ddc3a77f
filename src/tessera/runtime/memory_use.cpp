#include "tessera/runtime/memory_use.h"

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
  MemoryUse use;
  for (const size_t b : bind::alive_at_peak(machine.buffers)) {
    const size_t bytes = machine.buffers[b].bytes;
    use.peak += bytes;
    const Value* value = (*machine.occupants)[b].value;
    if (value && value->producer) (forward.contains(program.name_of(value)) ? use.activations : use.gradients) += bytes;
  }
  return use;
}

}  // namespace tessera::runtime
