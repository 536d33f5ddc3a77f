#include "tessera/time.h"

#include <algorithm>

#include "tessera/api/impl.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/cost/prices.h"
#include "tessera/forecast/calibrate.h"
#include "tessera/forecast/chakra.h"
#include "tessera/forecast/machines.h"
#include "tessera/forecast/report.h"
#include "tessera/sim/predict.h"

namespace tessera {
inline namespace v1 {

std::vector<std::string> known_machines() {
  return forecast::known_machines();
}

MachineModel load_machine(const std::string& name_or_path) {
  return forecast::load_machine(name_or_path);
}

Topology PredictSettings::links(const Mesh& mesh) const {
  return topology.empty() && mesh.size() > 1 ? machine.topology(mesh) : topology;
}

void PredictSettings::choose(CompileOptions& options, const Mesh& mesh) const {
  options.topology = links(mesh);
  if (mesh.size() > 1 && options.topology.empty()) return;
  auto own = std::make_shared<MachineModel>(machine);
  const std::string engine = connection ? connection->launch().engine : "threads";
  std::erase_if(own->collectives, [&](const MachineModel::Collective& each) { return each.engine != engine; });
  own->overlap = machine.overlap_on(engine);
  own->overlaps.clear();
  if (cost::moves_in_background(engine)) own->progress = MachineModel::Progress::background;
  options.machine = std::move(own);
}

namespace {

// The run that a prediction simulates, and how.
struct Simulated {
  runtime::DryRun run;
  MachineModel machine;
  sim::PredictOptions options;

  Simulated(const Program& program, const PredictSettings& settings)
      : run(program.impl().dry_run(settings.sizes)), machine(settings.machine) {
    const Mesh& mesh = program.mesh();
    for (const auto& [rank, factor] : settings.slow)
      if (rank < 0 || rank >= mesh.size())
        fail("simulate", "there is no rank {} on a mesh of {}, which are numbered 0 to {}", rank,
             counted(mesh.size(), "rank"), mesh.size() - 1);
    run.options.overlap = settings.overlap;
    if (settings.threads_per_rank > 0)
      run.options.threads_per_rank = settings.threads_per_rank;
    else if (machine.cores > 0)
      run.options.threads_per_rank = static_cast<int>(std::max<int64_t>(1, machine.cores / mesh.size()));
    options.topology = settings.links(mesh);
    forecast::scale_links(options.topology, machine, settings.link_scale);
    options.machine = &machine;
    options.fold = settings.fold;
    options.fold_similar = settings.fold_similar;
    if (settings.connection) {
      options.engine = settings.connection->launch().engine;
      options.process_ranks = 1;
      run.options.machine_ranks = settings.connection->launch().local_size;
    }
    for (const auto& [rank, factor] : settings.slow) options.slow[static_cast<int>(rank)] = factor;
  }
  Simulated(const Simulated&) = delete;
};

}  // namespace

MachineModel calibrate_machine(bool quick, const MeasurementObserver& begins) {
  return forecast::calibrate(
      quick, begins ? begins : [](const std::string&) {});
}

bool is_this_machine(const MachineModel& machine) {
  return forecast::is_this_machine(machine);
}

bool measure_missing(const Program& program, PredictSettings& settings, const MeasurementObserver& begins) {
  if (!is_this_machine(settings.machine))
    fail("machine", "{} describes another machine ({}, {}), so nothing can be measured for it here",
         settings.machine.source, settings.machine.processor, counted(settings.machine.cores, "core"));
  const Simulated simulated(program, settings);
  return forecast::measure_missing(
      simulated.run, simulated.options, settings.connection, settings.machine,
      begins ? begins : [](const std::string&) {});
}

Prediction predict(const Program& program, const PredictSettings& settings) {
  const Simulated simulated(program, settings);
  return forecast::report(sim::predict(simulated.run, simulated.options));
}

Prediction predict(const Program& program, const PredictSettings& settings, std::vector<TraceFile>& traces) {
  const Simulated simulated(program, settings);
  const sim::Predicted predicted = sim::predict(simulated.run, simulated.options);
  traces = forecast::chakra_traces(predicted, program.mesh());
  return forecast::report(predicted);
}

}  // namespace v1
}  // namespace tessera
