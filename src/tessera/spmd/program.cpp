#include "tessera/spmd/program.h"

#include <algorithm>
#include <unordered_set>

namespace tessera::spmd {

std::vector<std::string> layouts_in_use(const Program& program, std::string_view name) {
  std::vector<std::string> layouts;
  const auto placed_as = [&](const Value* value) -> const Placement* {
    auto placed = program.placements.find(value);
    return value && placed != program.placements.end() && placed->second.name == name ? &placed->second : nullptr;
  };
  const auto use = [&](const Value* value) {
    const Placement* placed = placed_as(value);
    if (!placed) return;
    std::string layout = placed->sharding.str(program.mesh);
    if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end()) layouts.push_back(std::move(layout));
  };
  for (const auto& node : program.graph->nodes()) {
    const bool lays_out = std::any_of(node->outputs.begin(), node->outputs.end(), placed_as);
    if (lays_out) continue;
    for (const Value* operand : node->inputs) use(operand);
  }
  for (const Port& output : program.outputs) use(output.value);
  return layouts;
}

void erase_dead(Program& program) {
  program.graph->erase_dead();
  std::unordered_set<const Value*> alive;
  for (const auto& value : program.graph->values()) alive.insert(value.get());
  // A later value may get the address of one that is gone.
  std::erase_if(program.placements, [&](const auto& entry) { return !alive.contains(entry.first); });
  std::erase_if(program.initial, [&](const auto& entry) { return !alive.contains(entry.first); });
}

}  // namespace tessera::spmd
