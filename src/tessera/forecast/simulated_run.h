#pragma once

#include "tessera/runtime/dry_run.h"
#include "tessera/sim/predict.h"
#include "tessera/time.h"

namespace tessera::forecast {

/// The run that a prediction simulates, and how. `options` refers to `machine`, so it stays where it is made.
struct SimulatedRun {
  runtime::DryRun run;
  MachineModel machine;
  sim::PredictOptions options;

  /// `planned`: of a program on the mesh, at the settings' sizes. Throws a user error for a slow rank that the mesh
  /// does not have, and as scale_links() does.
  SimulatedRun(runtime::DryRun planned, const Mesh& mesh, const PredictSettings& settings);
  SimulatedRun(const SimulatedRun&) = delete;
  SimulatedRun& operator=(const SimulatedRun&) = delete;
};

/// See PredictSettings::links.
Topology links_of(const PredictSettings& settings, const Mesh& mesh);

/// Whether a machine's file says how fast an engine's links are, if only roughly. Gloo and MPI may join hosts, so links
/// that were measured between threads say nothing of theirs.
bool knows_links(const MachineModel& machine, const std::string& engine);

/// The machine as compilations see it that choose by its times: only what was measured on that engine counts.
MachineModel machine_on(const MachineModel& machine, const std::string& engine);

}  // namespace tessera::forecast
