#pragma once

#include <vector>

#include "tessera/whatif/trace.h"

/// What communications of a recorded run take by themselves, without waiting for late ranks or for each other.
namespace tessera::whatif {

/// A rank's part in a communication, in one execution.
struct Moved {
  size_t rank = 0, step = 0;
  double seconds = 0;
  bool hidden = false;  ///< no rank saw it end, and the seconds are an estimate
};

/// All communications of a run.
///
/// Where a rank moves its data while it waits, a communication takes from the moment when all ranks had started it
/// until the wait ended. Elsewhere it goes on by itself from that moment on, and its end is seen by a rank that waits
/// then. Communications of one link go one after the other, so the recorded times contain each other's:
///
///   all had started      a at 0 ms, b at 1 ms, c at 2 ms
///   was seen to end      a at 10 ms; b ended unseen; c at 40 ms
///
/// a takes 10 ms, b and c together 30. Such a time is divided in proportion to what each takes by the line through what
/// communications of its kind take by their bytes. Where by these lines the link had nothing to move for a while, the
/// time starts again with the next communication. Where queues of a device, or communications over more levels than
/// others, use the same links at the same time, each takes longer (whatif/sharing.h); lines and times are of what it
/// takes without that. Lines, times and what is lost depend on each other, and are found in a few rounds.
std::vector<Moved> transfers_of(const Recording& recording, const RecordedRun& run);

}  // namespace tessera::whatif
