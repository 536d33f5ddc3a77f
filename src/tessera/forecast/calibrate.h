#pragma once

#include <functional>
#include <string>

#include "tessera/cost/machine_model.h"
#include "tessera/launch.h"
#include "tessera/sim/predict.h"

/// Measures this machine, for predictions.
namespace tessera::forecast {

/// Called with what is measured next.
using Begins = std::function<void(const std::string& what)>;

/// This machine as a machine file names it: processor, instruction sets, cores, versions, date. Measures nothing.
MachineModel describe_machine();

/// Whether the file describes a machine like this one: same processor, instruction sets and number of cores.
bool is_this_machine(const MachineModel& machine);

/// Measures kernels of common shapes on one core, on all cores, and on one core each for as many ranks as there are
/// cores; derives the rates of kernels in general (MachineModel::products, bandwidths, kernel); and measures links
/// between ranks that are threads. Takes about 40 s, or 10 s with `quick`.
MachineModel calibrate(bool quick, const Begins& begins);

/// Measures the kernels and collectives of this run that `machine` lacks, and adds them to it; it must be this machine.
/// Returns whether anything was missing. `connection`: of ranks that are processes, all of which make this call; rank 0
/// measures the kernels. Null: ranks are threads.
bool measure_missing(const runtime::DryRun& run, const sim::PredictOptions& options,
                     const std::shared_ptr<Connection>& connection, MachineModel& machine, const Begins& begins);

}  // namespace tessera::forecast
