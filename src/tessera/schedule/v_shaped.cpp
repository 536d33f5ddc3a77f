// Schedules on a V in little memory: rank r of p has the stages r and 2p - 1 - r, so that the first rank computes the
// loss, and what the two stages of a rank hold is balanced: the one is needed again as late as the other is early.
// V-Half and V-Min: Qi et al., "Pipeline Parallelism with Controllable Memory", 2024 (arXiv 2405.15362). The paper
// repeats a block of cells. We simulate instead, with three equal passes, and limit what stages hold: a rank holds at
// most `most` micro-batches of its two stages; the nearer a stage is to the loss, the sooner its gradients come, and
// the fewer of these it gets.
#include <algorithm>

#include "tessera/schedule/generators.h"
#include "tessera/schedule/list_scheduler.h"

namespace tessera::schedule {

namespace {

// By stage.
std::vector<int64_t> v_limits(int64_t ranks, int64_t most, int64_t rounding) {
  std::vector<int64_t> limits(static_cast<size_t>(2 * ranks));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const int64_t late = std::clamp<int64_t>((most * (rank + 1) + rounding) / (2 * ranks), 1, most - 1);
    limits[static_cast<size_t>(rank)] = most - late;
    limits[static_cast<size_t>(2 * ranks - 1 - rank)] = late;
  }
  return limits;
}

}  // namespace

PipelineTable make_v_shaped(int64_t ranks, int64_t micro_batches, int64_t most) {
  std::optional<PipelineTable> best;
  double least = 0;
  for (const int64_t rounding : {int64_t{0}, ranks / 2, ranks, 2 * ranks - 1})
    for (const bool oldest_first : {true, false}) {
      ListRules rules;
      rules.most_of_stage = v_limits(ranks, most, rounding);
      rules.oldest_first = oldest_first;
      std::optional<PipelineTable> made =
          list_schedule(empty_table(Placement::v, ranks, 2 * ranks, micro_batches), rules);
      check(made.has_value(), "a stage that may hold a micro-batch goes on");
      const double time = time_pipeline(*made, even_pipeline_costs(*made, 2, 2, 2, 0)).step;
      if (best && time >= least) continue;
      least = time;
      best = std::move(made);
    }
  return *best;
}

// 0.55 of what 1F1B's first rank holds.
PipelineTable make_v_half(int64_t ranks, int64_t micro_batches, int64_t) {
  return make_v_shaped(ranks, micro_batches, std::max<int64_t>(2, 11 * ranks / 10));
}

// A third of it, and one more; for up to four ranks, v-half is as narrow.
PipelineTable make_v_min(int64_t ranks, int64_t micro_batches, int64_t) {
  const int64_t third = (2 * ranks + 2) / 3 + 1;
  return make_v_shaped(ranks, micro_batches, std::max<int64_t>(2, std::min(11 * ranks / 10, third)));
}

}  // namespace tessera::schedule
