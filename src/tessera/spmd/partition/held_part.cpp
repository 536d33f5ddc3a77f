#include "tessera/spmd/partition/held_part.h"

namespace tessera::spmd {

std::optional<int64_t> look_up(std::string_view name, const Symbols& symbols, const Mesh& mesh,
                               const std::vector<int64_t>& coordinates) {
  if (name.starts_with('@')) {
    auto axis = mesh.find(name.substr(1));
    return axis ? std::optional(coordinates[*axis]) : std::nullopt;
  }
  auto found = symbols.find(name);
  return found == symbols.end() ? std::nullopt : std::optional(found->second);
}

Box held_part(const spmd::Program& program, const Value* value, const std::vector<int64_t>& coordinates,
              const Symbols& symbols) {
  return box_of(program.placement(value).sharding, program.mesh, coordinates,
                [&](std::string_view name) { return look_up(name, symbols, program.mesh, coordinates); });
}

bool writes_part(const spmd::Program& program, const Value* value, const std::vector<int64_t>& coordinates) {
  const spmd::Placement& placement = program.placement(value);
  if (!placement.sharding.lives_on(program.mesh, coordinates)) return false;
  for (size_t a = 0; a < program.mesh.axes().size(); ++a) {
    const MeshAxis& axis = program.mesh.axes()[a];
    int64_t digits = 1, coordinate = coordinates[a];
    for (const AxisRef& used : placement.sharding.axes()) {
      if (used.axis != axis.name) continue;
      int64_t minor = axis.size / (used.pre * used.size);
      coordinate -= digit_along(used, program.mesh, coordinates) * minor;
      digits *= used.size;
    }
    if (digits < axis.size && coordinate != 0) return false;
  }
  return true;
}

}  // namespace tessera::spmd
