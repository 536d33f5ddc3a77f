#pragma once

#include "tessera/whatif/trace.h"

/// Recorded runs as the simulator takes them.
namespace tessera::whatif {

/// The run with its own times: each rank by itself. Kernels take what they took. A transfer takes from the moment when
/// all ranks had started it until its wait ended; if it ended before the wait, so that its end was not seen, it takes
/// what its kind took elsewhere, and no longer than until the wait. What it takes the computing queue to start a
/// communication is a step of its own before it, with its operator and name.
///
/// `alone`: of communications that go on in the background, without the time during which an earlier one of the rank
/// was under way.
sim::Workload replayed(const Recording& recording, const RecordedRun& run, bool alone = false);

/// The seconds of communication in the run, and how many of them were not seen to end.
struct HiddenTransfers {
  int64_t all = 0, hidden = 0;
};
HiddenTransfers hidden_transfers(const Recording& recording, const RecordedRun& run);

/// What the recorded runs say of the machine, added to `machine`: the medians of kernels, by their signatures under
/// `conditions` on a mesh of `ranks`, and of collectives, by their bytes.
void learn(MachineModel& machine, const RecordedTrace& trace, const sim::RunConditions& conditions, int64_t ranks);

/// A machine of which nothing is known but what the recording says.
MachineModel bare_machine(const RecordedTrace& trace);

}  // namespace tessera::whatif
