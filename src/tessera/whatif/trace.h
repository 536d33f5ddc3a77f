#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/whatif/recording.h"

namespace tessera::whatif {

/// An action of a rank as it happened, in seconds since the run began. A wait that directly followed its start is one
/// event with it, which began with the start.
struct RecordedEvent {
  int action = 0;
  double begin = 0, end = 0;
  double complete = 0;  ///< of a wait: when the last rank of the group had started the communication
};

struct RecordedRun {
  double seconds = 0;
  struct Rank {
    std::vector<RecordedEvent> events;  ///< in running order
    double end = 0;                     ///< its outputs are stored
  };
  std::vector<Rank> ranks;
};

/// A trace with the programs of its runs.
struct RecordedTrace {
  std::string source;
  Recording recording;
  std::vector<RecordedRun> runs;  ///< at least one
  Json command;                   ///< that recorded it, in the command line's own words

  /// The run of median duration.
  size_t median_run() const;
};

/// Reads a trace that `bench --profile` or `train --profile` wrote. Throws a user error that says what is wrong with
/// another file, or with a part of one.
RecordedTrace read_trace(const std::filesystem::path& path);

}  // namespace tessera::whatif
