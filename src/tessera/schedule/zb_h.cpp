// Qi et al., "Zero Bubble Pipeline Parallelism", 2023 (arXiv 2401.10241), figures 2 and 3: the weight gradients come
// later than the input gradients for which other ranks wait. On rank r they come r micro-batches later (H1), so that
// all ranks hold as much as 1F1B's first; or 2r later (H2), after warm-ups of 2(p - r) - 1.
//
//     H1, rank 0:  F0 F1 F2  .  .  I0 W0 F3 I1 W1 ...
//         rank 1:   . F0 F1  . I0 F2 I1 W0 F3 I2 W1 ...
//         rank 2:   .  . F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 ...
#include <algorithm>

#include "tessera/schedule/generators.h"

namespace tessera::schedule {
namespace {

std::vector<Cell> zb_h_rank(int64_t rank, int64_t micro_batches, int64_t warm_up, int64_t lag) {
  std::vector<Cell> cells;
  warm_up = std::min(warm_up, micro_batches);
  for (int64_t each = 0; each < warm_up; ++each) cells.push_back(cell(Work::forward, rank, each));
  int64_t weights = 0;
  for (int64_t each = 0; each < micro_batches; ++each) {
    cells.push_back(cell(Work::input_gradient, rank, each));
    if (each >= lag) cells.push_back(cell(Work::weight_gradient, rank, weights++));
    if (warm_up + each < micro_batches) cells.push_back(cell(Work::forward, rank, warm_up + each));
  }
  while (weights < micro_batches) cells.push_back(cell(Work::weight_gradient, rank, weights++));
  return cells;
}

}  // namespace

PipelineTable make_zb_h1(int64_t ranks, int64_t micro_batches, int64_t) {
  PipelineTable table = empty_table(Placement::loop, ranks, ranks, micro_batches);
  for (int64_t rank = 0; rank < ranks; ++rank)
    table.ranks[static_cast<size_t>(rank)] = zb_h_rank(rank, micro_batches, ranks - rank, rank);
  return table;
}

PipelineTable make_zb_h2(int64_t ranks, int64_t micro_batches, int64_t) {
  PipelineTable table = empty_table(Placement::loop, ranks, ranks, micro_batches);
  for (int64_t rank = 0; rank < ranks; ++rank)
    table.ranks[static_cast<size_t>(rank)] = zb_h_rank(rank, micro_batches, 2 * (ranks - rank) - 1, 2 * rank);
  return table;
}

}  // namespace tessera::schedule
