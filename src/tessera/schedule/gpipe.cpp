// Huang et al., "GPipe", 2019 (arXiv 1811.06965).
//
//     rank 0:  F0 F1 F2 F3  .  .  B0 B1 B2 B3
//     rank 1:   . F0 F1 F2 F3 B0 B1 B2 B3
//
// Backward passes go in the order of the micro-batches, as in all schedules here, so that sums are the same.
#include "tessera/schedule/generators.h"

namespace tessera::schedule {

PipelineTable make_gpipe(int64_t ranks, int64_t micro_batches, int64_t) {
  PipelineTable table = empty_table(Placement::loop, ranks, ranks, micro_batches);
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (const Work work : {Work::forward, Work::backward})
      for (int64_t each = 0; each < micro_batches; ++each)
        table.ranks[static_cast<size_t>(rank)].push_back(cell(work, rank, each));
  return table;
}

}  // namespace tessera::schedule
