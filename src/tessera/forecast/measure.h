#pragma once

#include <functional>
#include <map>
#include <string>

#include "tessera/cost/machine_model.h"
#include "tessera/runtime/dry_run.h"

namespace tessera::forecast {

struct MeasureLimits {
  double seconds = 2;                      ///< of a series; the fewest rounds may take longer
  int least_rounds = 3, most_rounds = 40;  ///< of a series, after a first round, which does not count
  int most_series = 3;                     ///< while kernels' times do not settle (kernel_estimates.h)
  size_t memory = size_t{4} << 30;         ///< bytes for weights; further weights reuse the same memory
};

/// Times the kernels of a rank's program on this machine and returns those that `known` lacks, or has as uncertain, by
/// their signature and sim::condition(). They run in the program's order, on as many ranks at once as the machine has cores
/// for, with an arena as the program plans it and separate memory for each weight, so that caches hold what they hold
/// in a run. Communications move nothing, so results are meaningless, but ranks wait for each other where they have a
/// collective, and the kernels of the rank that came last to it count. KernelEstimates says how times follow from the
/// rounds.
///
/// Runs nothing if all kernels are known. Leaves out a kernel that rejects the values that stand for received ones.
std::map<std::string, MachineModel::Kernel> measure_kernels(const runtime::DryRun& run, int rank,
                                                            const std::map<std::string, MachineModel::Kernel>& known,
                                                            const MeasureLimits& limits = {});

/// A function that runs the kernels of a rank's program once, in the thread that has called this, with meaningless
/// values.
std::function<void()> kernels_of(const runtime::DryRun& run, int rank);

}  // namespace tessera::forecast
