#pragma once

#include <cstdint>

/// How many threads a loop gets, and how they wait: beside other work they sleep where they would spin on a machine of
/// their own.
namespace tessera::kernels {

/// With fewer elements than this, waking an OpenMP team is not worthwhile.
constexpr int64_t parallel_threshold = 32768;

/// Checks every few milliseconds whether other work needs the cores on which this process computes. While it does, the
/// threads of all OpenMP teams sleep when they wait, and those of this thread's team of `threads` are moved onto as
/// many cores as it gets. To be called before a team begins. Returns whether cores are shared with other work.
bool heed_other_work(int threads);

/// The largest team that a loop over `work` elements ever gets: `threads` from the threshold on, else 1.
inline int most_team_for(int64_t work, int threads) {
  return work >= parallel_threshold ? threads : 1;
}

/// The team that the loop gets now: where other work leaves the team one core only, 1. (With more cores it is the whole
/// team, since OpenMP ends and creates threads at each change of its size.)
int team_for(int64_t work, int threads);

}  // namespace tessera::kernels
