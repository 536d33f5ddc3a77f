#include "tessera/compiler/state_infos.h"

#include <map>
#include <set>
#include <string>

#include "tessera/compiler/tensor_info.h"
#include "tessera/spmd/program.h"

namespace tessera::compiler {

std::vector<StateInfo> states_of(std::span<const std::shared_ptr<const spmd::Program>> programs) {
  std::vector<StateInfo> all;
  std::set<std::string> seen;
  std::map<std::string, size_t> divided;  // by name
  const auto place_for = [&](const spmd::Placement& placement) -> StateInfo& {
    if (!placement.origin) return all.emplace_back();
    const StateOrigin& origin = *placement.origin;
    auto [known, fresh] = divided.try_emplace(origin.name, all.size());
    if (fresh)
      all.emplace_back().tensor =
          info_of(origin.name, {placement.global.dtype, Shape(origin.dims.begin(), origin.dims.end())});
    StateInfo& piece = all[known->second].pieces.emplace_back();
    piece.begin = origin.begin;
    return piece;
  };
  for (const auto& program : programs) {
    const auto layouts = spmd::layouts_in_use(*program);
    for (const Value* value : program->graph->values_of(ValueKind::state)) {
      if (program->derived.contains(value)) continue;
      const spmd::Placement& placement = program->placement(value);
      if (!seen.insert(placement.name).second) continue;
      StateInfo& state = place_for(placement);
      state.tensor = info_of(placement.name, placement.global);
      state.changes = value->changing;
      if (placement.origin) all[divided.at(placement.origin->name)].changes = value->changing;
      state.storage = placement.sharding.str(program->mesh);
      state.bytes = static_cast<int64_t>(spmd::hinted(largest_shard(placement.sharding, program->mesh), {})) *
                    bits_of(value->dtype()) / 8;
      if (auto used = layouts.find(placement.name); used != layouts.end()) state.compute = used->second;
    }
  }
  for (StateInfo& state : all)
    for (const StateInfo& piece : state.pieces) state.bytes += piece.bytes;
  return all;
}

}  // namespace tessera::compiler
