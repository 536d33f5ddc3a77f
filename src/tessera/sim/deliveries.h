#pragma once

#include <vector>

#include "tessera/runtime/dry_run.h"
#include "tessera/sim/simulate.h"

/// Where ranks live in several processes, those of other processes send their parts of the outputs to rank 0, which
/// returns them (runtime/output_parts.h).
namespace tessera::sim {

/// A part of an output that a rank sends to rank 0. It begins once both have run their programs, the sender has sent
/// its parts before this one, and rank 0 has received those of all ranks before it.
struct Delivery {
  int from = 0;          ///< rank
  double packing = 0;    ///< seconds in which the sender copies the part together
  Transfer transfer;     ///< to rank 0
  double unpacking = 0;  ///< seconds in which rank 0 copies the part apart
};

/// The deliveries of a run, in the order in which rank 0 receives them. `process_ranks`: ranks that live in each
/// process; 0: all.
std::vector<Delivery> deliveries_of(const runtime::DryRun& run, const Setting& setting, int64_t process_ranks);

/// Adds them to what ranks did before, which `timeline` has.
void deliver(const std::vector<Delivery>& deliveries, const std::vector<int>& class_of,
             const std::vector<ClassProgram>& classes, Timeline& timeline);

}  // namespace tessera::sim
