// DualPipeV, the V-shaped half of DualPipe: deepseek-ai/DualPipe, 2025. Rank r of p has the stages r and 2p - 1 - r,
// here "down" and "up". From the middle on, a forward pass and a backward pass of other micro-batches overlap, so that
// the communication within one hides behind the computation of the other. The phases' lengths are those of its README.
#include "tessera/schedule/generators.h"

namespace tessera::schedule {
namespace {

class DualPipeRank {
 public:
  DualPipeRank(int64_t ranks, int64_t rank) : down_(rank), up_(2 * ranks - 1 - rank) {}

  std::vector<Cell> cells(int64_t ranks, int64_t rank, int64_t micro_batches) {
    const int64_t after = ranks - 1 - rank;  // ranks further down
    repeat(2 * after, [&] { forward(down_); });
    repeat(rank + 1, [&] { forward(down_), forward(up_); });
    repeat(after, [&] { backward(up_, true), weights(), forward(up_); });
    bool first = after == 0;  // the last rank has just computed what the pair needs
    repeat(micro_batches - 2 * ranks + rank + 1, [&] {
      if (first) {
        forward(down_), backward(up_, false);
      } else {
        both(down_, up_);
      }
      first = false;
      both(up_, down_);
    });
    repeat(after, [&] { backward(up_, false), both(up_, down_); });
    // Half of the last passes are divided: their weight gradients fill the end.
    int64_t passes = 0;
    repeat(rank + 1, [&] {
      backward(up_, passes++ > rank);
      backward(down_, passes++ > rank);
    });
    repeat(after, [&] { weights(), backward(down_, true); });
    while (!waiting_.empty()) weights();
    return std::move(cells_);
  }

 private:
  static void repeat(int64_t times, auto&& step) {
    for (int64_t each = 0; each < times; ++each) step();
  }
  int64_t& done(int64_t stage, Work work) { return (work == Work::forward ? forward_ : backward_)[stage == up_]; }
  Action next(Work work, int64_t stage) { return {work, stage, done(stage, work)++}; }
  void forward(int64_t stage) { cells_.push_back({next(Work::forward, stage), {}}); }
  void backward(int64_t stage, bool divided) {
    const Action action = next(divided ? Work::input_gradient : Work::backward, stage);
    cells_.push_back({action, {}});
    if (divided) waiting_.push_back({Work::weight_gradient, stage, action.micro_batch});
  }
  void both(int64_t to, int64_t from) {
    const Action action = next(Work::forward, to);
    cells_.push_back({action, next(Work::backward, from)});
  }
  void weights() {
    if (waiting_.empty()) return;
    cells_.push_back({waiting_.front(), {}});
    waiting_.erase(waiting_.begin());
  }

  int64_t down_, up_;
  int64_t forward_[2] = {0, 0}, backward_[2] = {0, 0};
  std::vector<Action> waiting_;  // weight gradients
  std::vector<Cell> cells_;
};

}  // namespace

PipelineTable make_dualpipe_v(int64_t ranks, int64_t micro_batches, int64_t) {
  if (micro_batches < 2 * ranks)
    fail("pipeline", "'dualpipe-v' on {} ranks needs at least {} micro-batches, not {}; give more, or use zb-v", ranks,
         2 * ranks, micro_batches);
  PipelineTable table = empty_table(Placement::v, ranks, 2 * ranks, micro_batches);
  for (int64_t rank = 0; rank < ranks; ++rank)
    table.ranks[static_cast<size_t>(rank)] = DualPipeRank(ranks, rank).cells(ranks, rank, micro_batches);
  return table;
}

}  // namespace tessera::schedule
