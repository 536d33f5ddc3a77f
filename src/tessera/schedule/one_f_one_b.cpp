// 1F1B without flushes within a step: Narayanan et al., "PipeDream", 2019 (arXiv 1806.03377), and its flushing form,
// "Memory-Efficient Pipeline-Parallel DNN Training", 2021 (arXiv 2006.09503).
//
//     rank 0:  F0 F1 F2  .  .  B0 F3 B1 ...
//     rank 1:   . F0 F1  . B0 F2 B1 F3 ...       A rank holds as many micro-batches as stages follow, itself included.
//     rank 2:   .  . F0 B0 F1 B1 F2 B2 ...
#include <algorithm>

#include "tessera/schedule/generators.h"

namespace tessera::schedule {

PipelineTable make_1f1b(int64_t ranks, int64_t micro_batches, int64_t) {
  PipelineTable table = empty_table(Placement::loop, ranks, ranks, micro_batches);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::vector<Cell>& cells = table.ranks[static_cast<size_t>(rank)];
    const int64_t warm_up = std::min(micro_batches, ranks - rank);
    for (int64_t each = 0; each < warm_up; ++each) cells.push_back(cell(Work::forward, rank, each));
    for (int64_t each = 0; each < micro_batches; ++each) {
      cells.push_back(cell(Work::backward, rank, each));
      if (warm_up + each < micro_batches) cells.push_back(cell(Work::forward, rank, warm_up + each));
    }
  }
  return table;
}

}  // namespace tessera::schedule
