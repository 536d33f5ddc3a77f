#pragma once

#include <cstdint>

/// How many threads a loop gets, and how they wait: beside other work they sleep where they would spin on a machine of
/// their own.
namespace tessera::kernels {

/// With fewer elements than this, waking an OpenMP team is not worthwhile.
constexpr int64_t parallel_threshold = 32768;

/// Looks, every few milliseconds, whether other work wants the cores on which this process computes. While it does, the
/// threads of all OpenMP teams sleep when they wait, and this thread's team of `threads` keeps to cores of its own as
/// far as it can. To be called before a team begins. Returns whether cores are shared.
bool heed_other_work(int threads);

/// The largest team that a loop over `work` elements ever gets: `threads` from the threshold on, else 1.
inline int most_team_for(int64_t work, int threads) {
  return work >= parallel_threshold ? threads : 1;
}

/// The team that the loop gets now. Where other work shares the cores, a team has to be woken and may have to wait for
/// cores, so that it takes more work to be worthwhile.
int team_for(int64_t work, int threads);

}  // namespace tessera::kernels
