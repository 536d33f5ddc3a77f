#pragma once

#include <map>
#include <string>

#include "tessera/cost/machine_model.h"
#include "tessera/runtime/dry_run.h"

namespace tessera::sim {

struct MeasureLimits {
  double seconds = 2;                      ///< of measuring, unless the fewest rounds take longer
  int least_rounds = 3, most_rounds = 40;  ///< after one that does not count
  size_t memory = size_t{4} << 30;         ///< bytes for weights; what is beyond reuses the same memory
};

/// How kernels are distinguished that run under different conditions: on how many threads, and beside how many ranks of
/// the same machine that do the same.
std::string condition(int threads, int teams);

/// Times the kernels of a rank's program on this machine and returns those that `known` lacks, by their signature and
/// condition(). They run in the program's order, on as many ranks at once as the machine has cores for, with an arena
/// as the program plans it and each weight in memory of its own, so that what they read is in the caches, or not, as in
/// a run. Communications move nothing, so results mean nothing, but ranks wait for each other where they have a
/// collective, and the kernels of the rank that came last to it count. A kernel's time is its mean over all occurrences
/// in the half of the rounds whose totals are nearest to the median.
///
/// Runs nothing if all are known. A kernel that refuses what it gets instead of received values is left out.
std::map<std::string, MachineModel::Kernel> measure_kernels(const runtime::DryRun& run, int rank,
                                                            const std::map<std::string, MachineModel::Kernel>& known,
                                                            const MeasureLimits& limits = {});

}  // namespace tessera::sim
