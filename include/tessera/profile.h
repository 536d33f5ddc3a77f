#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/tessera.h"

/// Where the time of a run went, and the machine's peak rates.
namespace tessera {
inline namespace v1 {

/// One operator of one rank in one run, or in one iteration of a loop, in microseconds since the run began.
struct ProfileEvent {
  std::string name;  ///< as in the model
  std::string op;    ///< "MatMul", "AllReduce"
  bool communication = false;
  std::vector<std::string> axes;  ///< of a communication
  double begin = 0;
  double duration = 0;
  double waiting = 0;  ///< the part of a communication's duration until the last rank of the group arrived
  /// If operators ran while the communication was under way: their time. This event is then the wait for the
  /// communication's end; its start is an event of its own, where this is 0.
  double under_way = 0;
  /// Of a communication: while its transfer was under way, both 0 for a start. In a measured run, from the last
  /// member's start to the end of the wait: it may have ended earlier.
  double moving_begin = 0, moving_end = 0;
  int64_t action = -1;  ///< its number in the rank's machine program
  double bytes = 0;     ///< of a communication: those that the rank receives, or sends
  std::string cell;     ///< of a pipeline's table, "1I2"; "": none
};

/// One rank's run. compute + exposed + idle is the run's duration.
struct RankProfile {
  std::vector<ProfileEvent> events;  ///< in running order, one after the other
  double compute = 0;                ///< µs in operators, and in taking inputs and storing outputs
  double overlapped = 0;             ///< µs of `compute` while communication was under way
  double exposed = 0;                ///< µs in communication that nothing hides, after all ranks have arrived
  double idle = 0;                   ///< µs waiting for other ranks
  double end = 0;                    ///< µs since the run began: its outputs are stored
};

struct Profile {
  double duration = 0;  ///< µs, of the slowest rank
  std::vector<RankProfile> ranks;
};

/// The peak rates that a number of this machine's cores reach together.
struct MachinePeak {
  double flops = 0;      ///< per second, in a large matrix product with packed weights
  double bandwidth = 0;  ///< bytes per second, reading memory that no cache holds
};
/// Measures for about a second. `dtype` is float32, bfloat16 or float16; `flops` stays 0 if this machine has no matrix
/// products of that type.
MachinePeak measure_peak(DType dtype, int cores);

}  // namespace v1
}  // namespace tessera
