#include "tessera/forecast/simulated_run.h"

#include <algorithm>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/cost/prices.h"
#include "tessera/forecast/machines.h"

namespace tessera::forecast {
namespace {

constexpr const char* kThreads = "threads";  // the engine that calibrate() measures, and its link

std::string engine_of(const PredictSettings& settings) {
  return settings.connection ? settings.connection->launch().engine : kThreads;
}

// Whether the links of a machine's file are those that calibrate() has measured, between threads.
bool has_links_of_threads(const MachineModel& machine) {
  return machine.links.size() == 1 && machine.links.front().name == kThreads;
}

// Nullopt if its points do not say: the larger of the two last ones did not take longer.
std::optional<MachineModel::Link> link_of(const MachineModel::Collective& measured) {
  const auto traits = std::find_if(collectives().begin(), collectives().end(),
                                   [&](const CollectiveTraits& known) { return known.name == measured.kind; });
  if (traits == collectives().end()) return std::nullopt;
  const cost::Terms terms = cost::ring(traits->kind, measured.members, 1);
  const auto &last = measured.points.back(), &before = measured.points[measured.points.size() - 2];
  const double slope = (last.second - before.second) / (last.first - before.first);
  if (!(slope > 0) || terms.bytes <= 0) return std::nullopt;
  return MachineModel::Link{measured.engine, 0, measured.points.front().second / terms.messages, terms.bytes / slope};
}

// The links of an engine, by the collective that was measured on it among the most ranks with the most bytes: the
// latency of the fewest bytes, and the bandwidth between the two largest sizes. A link may let a burst pass at full
// speed, so a line through all sizes would be wrong for large ones.
std::optional<MachineModel::Link> measured_link(const MachineModel& machine, const std::string& engine) {
  const MachineModel::Collective* best = nullptr;
  std::optional<MachineModel::Link> link;
  const auto extent = [](const auto& of) { return std::pair(of.members, of.points.back().first); };
  for (const MachineModel::Collective& each : machine.collectives) {
    if (each.engine != engine || each.points.size() < 2 || (best && extent(each) <= extent(*best))) continue;
    if (const std::optional<MachineModel::Link> found = link_of(each)) {
      best = &each;
      link = found;
    }
  }
  return link;
}

// A machine's links as an engine uses them. Nothing says how fast the links between processes are on which nothing was
// measured: they stay as they are.
std::vector<MachineModel::Link> links_on(const MachineModel& machine, const std::string& engine) {
  if (engine != kThreads && has_links_of_threads(machine))
    if (const std::optional<MachineModel::Link> link = measured_link(machine, engine)) return {*link};
  return machine.links;
}

}  // namespace

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
    options.engine = engine_of(settings);
    options.process_ranks = 1;
    run.options.machine_ranks = settings.connection->launch().local_size;
  }
}

Topology links_of(const PredictSettings& settings, const Mesh& mesh) {
  if (!settings.topology.empty() || mesh.size() == 1) return settings.topology;
  MachineModel machine;
  machine.source = settings.machine.source;
  machine.links = links_on(settings.machine, engine_of(settings));
  return machine.topology(mesh);
}

bool knows_links(const MachineModel& machine, const std::string& engine) {
  return !cost::moves_in_background(engine) || !has_links_of_threads(machine) || measured_link(machine, engine);
}

MachineModel machine_on(const MachineModel& machine, const std::string& engine) {
  MachineModel own = machine;
  std::erase_if(own.collectives, [&](const MachineModel::Collective& each) { return each.engine != engine; });
  own.links = links_on(machine, engine);
  own.overlap = machine.overlap_on(engine);
  own.overlaps.clear();
  if (cost::moves_in_background(engine)) own.progress = MachineModel::Progress::background;
  return own;
}

}  // namespace tessera::forecast
