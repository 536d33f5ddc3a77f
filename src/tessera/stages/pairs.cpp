// Rank by rank, both of its stages at once. In a loop, stages of the first round begin at block 0, and those of the
// second round at a block `middle`, which is tried for each block:
//
//     0 … a │ rank 0 │ …  middle … b │ rank 0 │ …         of all b that an end a allows, the largest leaves the least
//
// In a V, the second stage of a rank ends where that of the rank before begins, and the smallest b leaves the least.
#include "tessera/stages/pairs.h"

#include <algorithm>

namespace tessera::stages {
namespace {

constexpr int64_t kNoEnd = -1;

class Pairing {
 public:
  Pairing(const Sums& sums, Pairs pairs, double rank_time, double stage_time)
      : sums_(sums), loop_(pairs == Pairs::loop), rank_time_(rank_time), stage_time_(stage_time) {}

  // The second stages begin at `middle`, or, in a V, end at the last block.
  std::optional<std::vector<int64_t>> ends(int64_t middle) {
    const int64_t ranks = sums_.stages() / 2, last = loop_ ? middle : sums_.blocks();
    const auto row = static_cast<size_t>(sums_.blocks() + 1);
    // By the end of a rank's first stage, the best end of its second one, and whence that came.
    std::vector<std::vector<int64_t>> best(static_cast<size_t>(ranks + 1), std::vector<int64_t>(row, kNoEnd));
    std::vector<std::vector<int64_t>> from = best;
    best[0][0] = loop_ ? middle : sums_.blocks();
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (int64_t a = 0; a <= last; ++a) {
        const int64_t b = best[static_cast<size_t>(rank)][static_cast<size_t>(a)];
        if (b == kNoEnd) continue;
        for (int64_t end = a; end <= (loop_ ? middle : b) && takes(rank, a, end) <= limit(); ++end) {
          if (!sums_.fits(rank, a, end)) break;
          const int64_t other = other_end(rank, end, b, rank_time_ - takes(rank, a, end));
          int64_t& known = best[static_cast<size_t>(rank + 1)][static_cast<size_t>(end)];
          if (known != kNoEnd && !(loop_ ? other > known : other < known)) continue;
          known = other;
          from[static_cast<size_t>(rank + 1)][static_cast<size_t>(end)] = a;
        }
      }
    const int64_t end = final_end(best.back(), middle);
    return end == kNoEnd ? std::nullopt : std::optional(traced(best, from, end));
  }

 private:
  double takes(int64_t stage, int64_t begin, int64_t end) const { return sums_.seconds(stage, begin, end); }
  double limit() const { return std::min(rank_time_, stage_time_); }

  // How far a rank's second stage goes, in the time that its first one leaves.
  int64_t other_end(int64_t rank, int64_t first_end, int64_t b, double time) const {
    const int64_t stage = loop_ ? rank + sums_.stages() / 2 : sums_.stages() - 1 - rank;
    const double most = std::min(time, stage_time_);
    const auto may_be = [&](int64_t begin, int64_t end) {
      return takes(stage, begin, end) <= most && sums_.fits(stage, begin, end);
    };
    int64_t other = b;
    if (loop_)
      while (other < sums_.blocks() && may_be(b, other + 1)) ++other;
    else
      while (other > first_end && may_be(other - 1, b)) --other;
    return other;
  }

  int64_t final_end(const std::vector<int64_t>& best, int64_t middle) const {
    if (loop_) return best[static_cast<size_t>(middle)] == sums_.blocks() ? middle : kNoEnd;
    for (int64_t a = 0; a <= sums_.blocks(); ++a)
      if (best[static_cast<size_t>(a)] == a) return a;
    return kNoEnd;
  }

  std::vector<int64_t> traced(const std::vector<std::vector<int64_t>>& best,
                              const std::vector<std::vector<int64_t>>& from, int64_t end) const {
    const int64_t ranks = sums_.stages() / 2;
    std::vector<int64_t> ends(static_cast<size_t>(2 * ranks), sums_.blocks());
    for (int64_t rank = ranks - 1; rank >= 0; --rank) {
      const int64_t other = best[static_cast<size_t>(rank + 1)][static_cast<size_t>(end)];
      ends[static_cast<size_t>(rank)] = end;
      ends[static_cast<size_t>(loop_ ? rank + ranks : 2 * ranks - 2 - rank)] = other;
      end = from[static_cast<size_t>(rank + 1)][static_cast<size_t>(end)];
    }
    return ends;
  }

  const Sums& sums_;
  const bool loop_;
  const double rank_time_, stage_time_;
};

}  // namespace

Pairs pairs_of(const Sums& sums) {
  const int64_t stages = sums.stages(), ranks = stages / 2;
  if (stages % 2 != 0) return Pairs::none;
  bool loop = true, v = true;
  for (int64_t stage = 0; stage < ranks; ++stage) {
    for (int64_t other = 0; other < stage; ++other)
      if (sums.rank(other) == sums.rank(stage)) return Pairs::none;
    loop = loop && sums.rank(stage + ranks) == sums.rank(stage);
    v = v && sums.rank(stages - 1 - stage) == sums.rank(stage);
  }
  return loop ? Pairs::loop : v ? Pairs::v : Pairs::none;
}

std::optional<std::vector<int64_t>> ends_of_pairs(const Sums& sums, Pairs pairs, double rank_time, double stage_time) {
  Pairing pairing(sums, pairs, rank_time, stage_time);
  if (pairs == Pairs::v) return pairing.ends(0);
  for (int64_t middle = 0; middle <= sums.blocks(); ++middle)
    if (auto ends = pairing.ends(middle)) return ends;
  return std::nullopt;
}

}  // namespace tessera::stages
