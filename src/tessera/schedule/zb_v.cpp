// ZB-V: Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241), section 6. Rank r of p has the stages r and
// 2p - 1 - r, here "down" and "up". If the three passes take equal times, no rank is idle between its first cell and
// its last. Rank 1 of 2 with 4 micro-batches (stages 1 down, 2 up):
//
//     1F0  2F0 1F1  2F1 2I0 2W0  1F2 1I0 1W0 2F2 2I1 2W1 ...
//     first, in turn, with gradients, then the turns of all six
#include <algorithm>

#include "tessera/schedule/generators.h"

namespace tessera::schedule {
namespace {

class ZbVRank {
 public:
  ZbVRank(int64_t ranks, int64_t rank, int64_t micro_batches)
      : ranks_(ranks), rank_(rank), down_(rank), up_(2 * ranks - 1 - rank), micro_batches_(micro_batches) {}

  std::vector<Cell> cells() {
    // The phases need so many micro-batches; cells of those that are not there are left out.
    const int64_t all = std::max(micro_batches_, 2 * ranks_ - 1);
    for (int64_t each = 0; each < 2 * (ranks_ - rank_) - 1; ++each) add(Work::forward, down_);
    for (int64_t each = 0; each < rank_; ++each) add(Work::forward, up_), add(Work::forward, down_);
    for (int64_t each = 0; each < ranks_ - rank_; ++each) turn(up_);
    while (next(Work::forward, up_) < all) {
      if (next(Work::forward, down_) < all) add(Work::forward, down_);
      gradients(down_);
      turn(up_);
    }
    for (int64_t each = 0; each < rank_; ++each) add(Work::input_gradient, down_), add(Work::input_gradient, up_);
    for (int64_t each = 0; each < ranks_ - rank_; ++each) gradients(down_);
    for (const int64_t stage : {up_, down_})
      while (next(Work::weight_gradient, stage) < all) add(Work::weight_gradient, stage);
    return std::move(cells_);
  }

 private:
  int64_t& next(Work work, int64_t stage) {
    return next_[stage == up_][work == Work::forward ? 0 : work == Work::input_gradient ? 1 : 2];
  }
  void add(Work work, int64_t stage) {
    const int64_t micro_batch = next(work, stage)++;
    if (micro_batch < micro_batches_) cells_.push_back(cell(work, stage, micro_batch));
  }
  void gradients(int64_t stage) { add(Work::input_gradient, stage), add(Work::weight_gradient, stage); }
  void turn(int64_t stage) { add(Work::forward, stage), gradients(stage); }

  int64_t ranks_, rank_, down_, up_, micro_batches_;
  int64_t next_[2][3] = {};
  std::vector<Cell> cells_;
};

}  // namespace

PipelineTable make_zb_v(int64_t ranks, int64_t micro_batches, int64_t) {
  PipelineTable table = empty_table(Placement::v, ranks, 2 * ranks, micro_batches);
  for (int64_t rank = 0; rank < ranks; ++rank)
    table.ranks[static_cast<size_t>(rank)] = ZbVRank(ranks, rank, micro_batches).cells();
  return table;
}

}  // namespace tessera::schedule
