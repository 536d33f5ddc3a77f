#include "tessera/spmd/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "tessera/base/error.h"

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

namespace {

std::unordered_set<const Value*> values_of(const Program& program) {
  std::unordered_set<const Value*> alive;
  alive.reserve(program.graph->values().size());
  for (const Graph* graph : {program.graph.get(), program.init.get()})
    if (graph)
      for (const auto& value : graph->values()) alive.insert(value.get());
  return alive;
}

}  // namespace

void verify(const Program& program, std::string_view stage) {
  for (const Graph* graph : {program.graph.get(), program.init.get()})
    if (graph) graph->verify(stage);
  const std::unordered_set<const Value*> alive = values_of(program);
  for (const auto& [value, placement] : program.placements)
    if (!alive.contains(value))
      check(false, fmt::format("{}: '{}' has a placement, but its value was erased", stage, placement.name));
  for (const auto& [state, data] : program.initial)
    if (!alive.contains(state)) check(false, fmt::format("{}: a state that was erased has initial data", stage));
}

void erase_dead(Program& program, bool states) {
  program.graph->erase_dead(states);
  const std::unordered_set<const Value*> alive = values_of(program);
  // A later value may get the address of an erased one.
  std::erase_if(program.placements, [&](const auto& entry) { return !alive.contains(entry.first); });
  std::erase_if(program.initial, [&](const auto& entry) { return !alive.contains(entry.first); });
}

}  // namespace tessera::spmd
