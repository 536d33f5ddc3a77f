#include "tessera/spmd/program.h"

#include <algorithm>
#include <unordered_set>

namespace tessera::spmd {

std::map<std::string, std::vector<std::string>> layouts_in_use(const Program& program) {
  std::map<std::string, std::vector<std::string>> layouts;
  const auto placed = [&](const Value* value) -> const Placement* {
    auto found = program.placements.find(value);
    return value && found != program.placements.end() ? &found->second : nullptr;
  };
  const auto use = [&](const Placement& placement) {
    std::vector<std::string>& known = layouts[placement.name];
    std::string layout = placement.sharding.str(program.mesh);
    if (std::find(known.begin(), known.end(), layout) == known.end()) known.push_back(std::move(layout));
  };
  const auto note_uses = [&](const Graph& graph) {
    for (const auto& node : graph.nodes())
      for (const Value* operand : node->inputs) {
        const Placement* taken = placed(operand);
        if (!taken) continue;
        const bool lays_out = std::any_of(node->outputs.begin(), node->outputs.end(), [&](const Value* result) {
          const Placement* made = placed(result);
          return made && made->name == taken->name;
        });
        if (!lays_out) use(*taken);
      }
  };
  if (program.init) note_uses(*program.init);
  note_uses(*program.graph);
  for (const Port& output : program.outputs)
    if (const Placement* taken = placed(output.value)) use(*taken);
  return layouts;
}

void erase_dead(Program& program, bool states) {
  program.graph->erase_dead(states);
  std::unordered_set<const Value*> alive;
  for (const Graph* graph : {program.graph.get(), program.init.get()})
    if (graph)
      for (const auto& value : graph->values()) alive.insert(value.get());
  // A later value may get the address of one that is gone.
  std::erase_if(program.placements, [&](const auto& entry) { return !alive.contains(entry.first); });
  std::erase_if(program.initial, [&](const auto& entry) { return !alive.contains(entry.first); });
}

}  // namespace tessera::spmd
