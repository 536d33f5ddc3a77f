#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/whatif/trace.h"

/// Recorded runs as the simulator takes them.
namespace tessera::whatif {

/// What kernels take while no communication goes on beside them. It takes cores and memory from them, so they are
/// slower and less even.
class Undisturbed {
 public:
  explicit Undisturbed(const RecordedTrace& trace);

  /// The median of the kernels of this signature that ran while no communication was under way; of all, if none did.
  double seconds_of(const std::string& signature) const;

 private:
  struct Times {
    std::vector<double> alone, all;
  };
  std::map<std::string, Times> kernels_;
};

/// The run with its own times: each rank by itself. Kernels take what they took (with `undisturbed`, those beside
/// communications what it says), and transfers what they take alone (transfers_of()). What it takes the computing queue
/// to start a communication is a step of its own before it, with its operator and name.
sim::Workload replayed(const Recording& recording, const RecordedRun& run, const Undisturbed* undisturbed = nullptr);

/// The communications of a run, and how many of them were not seen to end.
struct HiddenTransfers {
  int64_t all = 0, hidden = 0;
};
HiddenTransfers hidden_transfers(const Recording& recording, const RecordedRun& run);

/// What the recorded runs say of the machine, added to `machine`: the medians of kernels, by their signatures under
/// `conditions` on a mesh of `ranks`, and of collectives, by their bytes. `at_once` as below.
void learn(MachineModel& machine, const RecordedTrace& trace, const sim::RunConditions& conditions, int64_t ranks,
           int64_t at_once);

/// Adds to classes that have times what their buckets copy: operands together before the collective starts, and results
/// apart after its wait. Ranks come to a collective one by one, but leave it together: after it, so many copy `at_once`
/// and share the machine's memory. A device with queues of its own copies in the queue that communicates; then nothing
/// is added.
void add_bucket_copies(sim::Workload& workload, const std::vector<sim::ClassWork>& classes, const MachineModel& machine,
                       int64_t at_once, bool is_asynchronous);

/// A machine of which nothing is known but what the recording says: the rates of its products (those of 16-bit floats
/// are assumed to be twice those of float32, as of most processors and accelerators that have them) and of its copies.
MachineModel bare_machine(const RecordedTrace& trace);

}  // namespace tessera::whatif
