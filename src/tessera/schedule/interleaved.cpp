// Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021 (arXiv 2104.04473), section
// 2.2. Micro-batches go through the stages of a rank in groups of as many as there are ranks. With 2 ranks and 2
// stages on each (rank 0 has stages 0 and 2):
//
//     forward order of rank 0:   0F0 0F1 2F0 2F1  0F2 0F3 2F2 2F3 ...
//     backward order of rank 0:  2B0 2B1 0B0 0B1  2B2 2B3 0B2 0B3 ...
//
// A rank takes its first passes forward, then one of each list in turn. The paper asks for a multiple of the ranks.
// Here a remainder is dealt out among the groups: 11 micro-batches on 4 ranks go in groups of 6 and 5.
#include <algorithm>

#include "tessera/schedule/generators.h"

namespace tessera::schedule {
namespace {

struct Pass {
  int64_t chunk, micro_batch;
};

std::vector<Pass> passes(const std::vector<int64_t>& groups, int64_t chunks, bool backward) {
  std::vector<Pass> order;
  int64_t first = 0;
  for (const int64_t size : groups) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      for (int64_t each = 0; each < size; ++each)
        order.push_back({backward ? chunks - 1 - chunk : chunk, first + each});
    first += size;
  }
  return order;
}

}  // namespace

PipelineTable make_interleaved(int64_t ranks, int64_t micro_batches, int64_t chunks) {
  PipelineTable table = empty_table(Placement::loop, ranks, ranks * chunks, micro_batches);
  const int64_t count = std::max<int64_t>(1, micro_batches / ranks);
  std::vector<int64_t> groups;
  for (int64_t group = 0; group < count; ++group)
    groups.push_back(micro_batches / count + (group < micro_batches % count ? 1 : 0));
  const std::vector<Pass> forward = passes(groups, chunks, false), backward = passes(groups, chunks, true);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::vector<Cell>& cells = table.ranks[static_cast<size_t>(rank)];
    const auto add = [&](Work work, const Pass& pass) {
      cells.push_back(cell(work, pass.chunk * ranks + rank, pass.micro_batch));
    };
    const int64_t all = std::ssize(forward);
    const int64_t warm_up = std::min(all, (chunks - 1) * groups.front() + 2 * (ranks - 1 - rank) + 1);
    for (int64_t each = 0; each < warm_up; ++each) add(Work::forward, forward[static_cast<size_t>(each)]);
    for (int64_t each = 0; each < all; ++each) {
      add(Work::backward, backward[static_cast<size_t>(each)]);
      if (warm_up + each < all) add(Work::forward, forward[static_cast<size_t>(warm_up + each)]);
    }
  }
  return table;
}

}  // namespace tessera::schedule
