#include "tessera/runtime/memory_use.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "tessera/ir/transplant.h"

namespace tessera::runtime {
namespace {

// By global names, so that recomputed values count like the first ones. Where the first output is another stage's, the
// nodes say to which pass they belong.
std::set<std::string_view> forward_results(const spmd::Program& program) {
  std::set<std::string_view> names;
  const auto add = [&](const Node& node) {
    for (const Value* result : node.outputs)
      if (result) names.insert(program.name_of(result));
  };
  if (!program.outputs.empty() && program.outputs.front().value)
    for (const Node* node : makers_of(*program.graph, {program.outputs.front().value})) add(*node);
  for (const auto& node : program.graph->nodes())
    if (node->seat.is_staged() && !node->seat.is_backward()) add(*node);
  return names;
}

}  // namespace

std::vector<MemoryUse> arena_over_time(const bind::MachineProgram& machine, const spmd::Program& program) {
  const std::set<std::string_view> forward = forward_results(program);
  const int actions = static_cast<int>(machine.actions->size());
  std::vector<MemoryUse> use(static_cast<size_t>(std::max(actions, 1)));
  for (size_t b = 0; b < machine.buffers.size(); ++b) {
    const Value* value = (*machine.occupants)[b].value;
    const bool is_result = value && value->producer;
    const bool is_activation = is_result && forward.contains(program.name_of(value));
    const auto& [bytes, first, last] = machine.buffers[b];
    for (int at = std::max(first, 0); at <= std::min(last, actions - 1); ++at) {
      MemoryUse& now = use[static_cast<size_t>(at)];
      now.peak += bytes;
      if (is_result) (is_activation ? now.activations : now.gradients) += bytes;
    }
  }
  return use;
}

MemoryUse arena_use(const bind::MachineProgram& machine, const spmd::Program& program) {
  const std::vector<MemoryUse> use = arena_over_time(machine, program);
  return *std::max_element(use.begin(), use.end(),
                           [](const MemoryUse& a, const MemoryUse& b) { return a.peak < b.peak; });
}

}  // namespace tessera::runtime
