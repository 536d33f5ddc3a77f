#include "tessera/forecast/machines.h"

#include <fmt/ranges.h>

#include <set>

#include "tessera/base/error.h"
#include "tessera/cost/shipped_machines.h"
#include "tessera/io/mapped_file.h"

namespace tessera::forecast {

std::vector<std::string> known_machines() {
  std::vector<std::string> names;
  for (const cost::ShippedMachine& machine : cost::shipped_machines()) names.emplace_back(machine.name);
  return names;
}

MachineModel load_machine(const std::string& name_or_path) {
  for (const cost::ShippedMachine& machine : cost::shipped_machines())
    if (machine.name == name_or_path) return MachineModel::from_json(machine.text, name_or_path);
  if (!std::filesystem::exists(name_or_path))
    fail("machine", "'{}' is neither a file nor a machine that comes with tessera: {}", name_or_path,
         fmt::join(known_machines(), ", "));
  return MachineModel::from_json(MappedFile::open(name_or_path, "machine")->view(), name_or_path);
}

void scale_links(Topology& topology, MachineModel& machine, const std::map<std::string, double>& factors) {
  std::set<std::string> names;
  for (const auto& [name, factor] : factors) {
    bool found = false;
    for (Topology::Axis& axis : topology.axes)
      for (LinkLevel& level : axis.levels) {
        names.insert(level.name);
        if (level.name != name) continue;
        level.bandwidth *= factor;
        found = true;
      }
    for (MachineModel::Collective& collective : machine.collectives) {
      names.insert(collective.engine);
      if (collective.engine != name) continue;
      for (auto& [bytes, seconds] : collective.points) seconds /= factor;
      found = true;
    }
    if (!found)
      fail("simulate", "there is no level of links '{}' on this mesh; its levels are: {}", name,
           fmt::join(names, ", "));
  }
}

}  // namespace tessera::forecast
