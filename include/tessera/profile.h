#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/tessera.h"

/// Where the time of a run went, and what the machine could do.
namespace tessera {
inline namespace v1 {

/// One operator of one rank in one run, in microseconds since the run began.
struct ProfileEvent {
  std::string name;  ///< as in the model
  std::string op;    ///< "MatMul", "AllReduce"
  bool communication = false;
  std::vector<std::string> axes;  ///< of a communication
  double begin = 0;
  double duration = 0;
  double waiting = 0;  ///< of a communication's duration: until the last rank of the group had come
  /// Of a communication that was under way while operators ran: what they took. Its start is an event of its own, where
  /// this is 0, and this event is the wait for its end.
  double under_way = 0;
};

/// One rank's run. compute + exposed + idle is the run's duration.
struct RankProfile {
  std::vector<ProfileEvent> events;  ///< in running order, one after the other
  double compute = 0;                ///< µs in operators, and in taking inputs and storing outputs
  double overlapped = 0;             ///< µs of these while communication was under way
  double exposed = 0;                ///< µs in communication that nothing hides, once all ranks have come
  double idle = 0;                   ///< µs waiting for other ranks
};

struct Profile {
  double duration = 0;  ///< µs, of the slowest rank
  std::vector<RankProfile> ranks;
};

/// What a number of this machine's cores reach together.
struct MachinePeak {
  double flops = 0;      ///< per second, in a large matrix product with packed weights
  double bandwidth = 0;  ///< bytes per second, reading memory that no cache holds
};
/// Measures for about a second. `dtype`: float32, bfloat16 or float16; no FLOP/s if there are no products of it here.
MachinePeak measure_peak(DType dtype, int cores);

}  // namespace v1
}  // namespace tessera
