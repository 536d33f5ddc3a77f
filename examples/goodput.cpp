// What failures cost a long training run: goodput STEP_SECONDS HOURS_BETWEEN_FAILURES RESTART_SECONDS
// CHECKPOINT_SECONDS
#include "tessera/goodput.h"

#include <cstdio>
#include <cstdlib>

#include "tessera/error.h"

int main(int argc, char** argv) try {
  if (argc != 5) {
    std::fprintf(stderr, "usage: goodput STEP_SECONDS HOURS_BETWEEN_FAILURES RESTART_SECONDS CHECKPOINT_SECONDS\n");
    return 2;
  }
  const double step = std::atof(argv[1]);
  const tessera::FailureModel failures{3600 * std::atof(argv[2]), std::atof(argv[3]), std::atof(argv[4])};
  const int64_t every = tessera::best_checkpoint_steps(failures, step);
  const tessera::Goodput found = tessera::goodput(failures, step, every);
  std::printf("a checkpoint every %lld steps: %.1f %% of the time makes progress\n", static_cast<long long>(every),
              100 * found.share);
  std::printf("checkpoints take %.1f %%, lost steps %.1f %%, restarts %.1f %%\n", 100 * found.checkpoint_share,
              100 * found.lost_share, 100 * found.restart_share);
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
