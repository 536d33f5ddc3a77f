#include "tessera/time.h"

#include "tessera/api/impl.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/forecast/calibrate.h"
#include "tessera/forecast/chakra.h"
#include "tessera/forecast/machines.h"
#include "tessera/forecast/report.h"
#include "tessera/forecast/simulated_run.h"
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
  return forecast::links_of(*this, mesh);
}

void PredictSettings::choose(CompileOptions& options, const Mesh& mesh) const {
  options.topology = links(mesh);
  const std::string engine = connection ? connection->launch().engine : "threads";
  const bool knows_links = !topology.empty() || forecast::knows_links(machine, engine);
  if (mesh.size() > 1 && (options.topology.empty() || !knows_links)) return;
  options.machine = std::make_shared<MachineModel>(forecast::machine_on(machine, engine));
}

namespace {

forecast::SimulatedRun simulated(const Program& program, const PredictSettings& settings) {
  return {program.impl().dry_run(settings.sizes), program.mesh(), settings};
}

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
  const forecast::SimulatedRun made = simulated(program, settings);
  return forecast::measure_missing(
      made.run, made.options, settings.connection, settings.machine, begins ? begins : [](const std::string&) {});
}

Prediction predict(const Program& program, const PredictSettings& settings) {
  const forecast::SimulatedRun made = simulated(program, settings);
  return forecast::report(sim::predict(made.run, made.options));
}

Prediction predict(const Program& program, const PredictSettings& settings, std::vector<TraceFile>& traces) {
  const forecast::SimulatedRun made = simulated(program, settings);
  const sim::Predicted predicted = sim::predict(made.run, made.options);
  traces = forecast::chakra_traces(predicted, program.mesh());
  return forecast::report(predicted);
}

}  // namespace v1
}  // namespace tessera
