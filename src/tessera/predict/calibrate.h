#pragma once

#include <functional>
#include <string>

#include "tessera/cost/machine_model.h"
#include "tessera/launch.h"
#include "tessera/sim/predict.h"

/// Measures this machine, for predictions.
namespace tessera::predict {

/// Told what is measured next.
using Begins = std::function<void(const std::string& what)>;

/// This machine as files name it: processor, instruction sets, cores, versions, date; nothing is measured.
MachineModel describe_machine();

/// Whether the file was made on such a machine: same processor, instruction sets and number of cores.
bool is_this_machine(const MachineModel& machine);

/// Measures kernels of common shapes on one core, on all cores, and on one core each beside the others; what follows
/// from them for kernels in general (MachineModel::products, bandwidths, kernel); and links between ranks that are
/// threads. Takes about 40 s, or 10 with `quick`.
MachineModel calibrate(bool quick, const Begins& begins);

/// Measures what a prediction of this run would have to extrapolate, kernels and collectives, and adds it to `machine`,
/// which must be this machine. Returns whether anything was missing. `connection`: of ranks that are processes, all of
/// which make this call; rank 0 measures the kernels. Null: ranks are threads.
bool measure_missing(const runtime::DryRun& run, const sim::PredictOptions& options,
                     const std::shared_ptr<Connection>& connection, MachineModel& machine, const Begins& begins);

}  // namespace tessera::predict
