#include "tessera/spmd/program.h"

#include <unordered_set>

namespace tessera::spmd {

void erase_dead(Program& program) {
  program.graph->erase_dead();
  std::unordered_set<const Value*> alive;
  for (const auto& value : program.graph->values()) alive.insert(value.get());
  // A later value may come to stand at the address of one that is gone.
  std::erase_if(program.placements, [&](const auto& entry) { return !alive.contains(entry.first); });
  std::erase_if(program.initial, [&](const auto& entry) { return !alive.contains(entry.first); });
}

}  // namespace tessera::spmd
