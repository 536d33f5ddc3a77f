#include "tessera/forecast/simulated_run.h"

#include <algorithm>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/cost/prices.h"
#include "tessera/forecast/machines.h"

namespace tessera::forecast {

SimulatedRun::SimulatedRun(runtime::DryRun planned, const Mesh& mesh, const PredictSettings& settings)
    : run(std::move(planned)), machine(settings.machine) {
  for (const auto& [rank, factor] : settings.slow) {
    if (rank < 0 || rank >= mesh.size())
      fail("simulate", "there is no rank {} on a mesh of {}, which are numbered 0 to {}", rank,
           counted(mesh.size(), "rank"), mesh.size() - 1);
    options.slow[static_cast<int>(rank)] = factor;
  }
  run.options.overlap = settings.overlap;
  if (settings.threads_per_rank > 0)
    run.options.threads_per_rank = settings.threads_per_rank;
  else if (machine.cores > 0)
    run.options.threads_per_rank = static_cast<int>(std::max<int64_t>(1, machine.cores / mesh.size()));
  options.topology = links_of(settings, mesh);
  scale_links(options.topology, machine, settings.link_scale);
  options.machine = &machine;
  options.fold = settings.fold;
  options.fold_similar = settings.fold_similar;
  if (settings.connection) {
    options.engine = settings.connection->launch().engine;
    options.process_ranks = 1;
    run.options.machine_ranks = settings.connection->launch().local_size;
  }
}

Topology links_of(const PredictSettings& settings, const Mesh& mesh) {
  return settings.topology.empty() && mesh.size() > 1 ? settings.machine.topology(mesh) : settings.topology;
}

MachineModel machine_on(const MachineModel& machine, const std::string& engine) {
  MachineModel own = machine;
  std::erase_if(own.collectives, [&](const MachineModel::Collective& each) { return each.engine != engine; });
  own.overlap = machine.overlap_on(engine);
  own.overlaps.clear();
  if (cost::moves_in_background(engine)) own.progress = MachineModel::Progress::background;
  return own;
}

}  // namespace tessera::forecast
