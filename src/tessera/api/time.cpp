#include "tessera/time.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/cost/shipped_machines.h"
#include "tessera/sim/predict.h"
#include "tessera/sim/report.h"

namespace tessera {
inline namespace v1 {

std::vector<std::string> known_machines() {
  std::vector<std::string> names;
  for (const cost::ShippedMachine& machine : cost::shipped_machines()) names.emplace_back(machine.name);
  return names;
}

MachineModel load_machine(const std::string& name_or_path) {
  for (const cost::ShippedMachine& machine : cost::shipped_machines())
    if (machine.name == name_or_path) return MachineModel::from_json(machine.text, name_or_path);
  std::ifstream file(name_or_path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    fail("machine", "'{}' is neither a file that can be read nor a machine that comes with tessera: {}", name_or_path,
         fmt::join(known_machines(), ", "));
  return MachineModel::from_json(text.str(), name_or_path);
}

namespace {

void scale_links(Topology& topology, MachineModel& machine, const std::map<std::string, double>& scale) {
  std::set<std::string> names;
  for (const auto& [name, factor] : scale) {
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

}  // namespace

Prediction predict(const Program& program, const PredictSettings& settings) {
  const Mesh& mesh = program.mesh();
  for (const auto& [rank, factor] : settings.slow) {
    if (rank < 0 || rank >= mesh.size())
      fail("simulate", "there is no rank {} on a mesh of {} ranks; their numbers are from 0 to {}", rank, mesh.size(),
           mesh.size() - 1);
  }
  runtime::DryRun run = program.impl().dry_run(settings.sizes);
  run.options.overlap = settings.overlap;
  if (settings.threads_per_rank > 0) run.options.threads_per_rank = settings.threads_per_rank;
  MachineModel machine = settings.machine;
  sim::PredictOptions options;
  options.topology = settings.topology.empty() && mesh.size() > 1 ? machine.topology(mesh) : settings.topology;
  scale_links(options.topology, machine, settings.link_scale);
  options.machine = &machine;
  options.engine = settings.engine;
  for (const auto& [rank, factor] : settings.slow) options.slow[static_cast<int>(rank)] = factor;
  return sim::report(sim::predict(run, options));
}

}  // namespace v1
}  // namespace tessera
