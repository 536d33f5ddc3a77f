#include "tessera/stages/search.h"

#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "tessera/stages/pairs.h"

namespace tessera::stages {
namespace {

// Goes through the ends of the first stage, for each through those of the second, and so on.
class Search {
 public:
  Search(const Sums& sums, std::vector<int64_t> start) : sums_(sums), best_(std::move(start)), ends_(best_.size()) {
    for (int64_t stage = 0; stage < sums.stages(); ++stage) {
      busy_[sums.rank(stage)] = 0;
      last_[sums.rank(stage)] = stage;
    }
    time_ = sums.micro_batch(best_);
    cuts_ = sums.all_cuts(best_);
  }

  Dealt run() {
    improve();
    const Pairs pairs = pairs_of(sums_);
    if (pairs == Pairs::none)
      go(0, 0);
    else
      shorten(pairs);
    const bool best = finished();
    for_bytes_ = true;
    visits_ = 0;
    go(0, 0);
    return {counts_of(best_), best};
  }

 private:
  static constexpr int64_t kMostVisits = 300'000;
  bool finished() const { return visits_ < kMostVisits; }

  // The longest time that is still of use.
  double limit() const { return for_bytes_ ? time_ * (1 + kSameTime) : time_ * (1 - kSameTime); }

  void keep(const std::vector<int64_t>& ends) {
    const double time = sums_.micro_batch(ends), cuts = sums_.all_cuts(ends);
    const bool faster = time < time_ * (1 - kSameTime);
    if (!faster && (time > time_ * (1 + kSameTime) || cuts >= cuts_)) return;
    best_ = ends;
    time_ = std::min(time, time_);
    cuts_ = cuts;
  }

  // Moves a block from a stage to another, through the stages between them, while that helps: a good start prunes more.
  // A move may also only make the times less uneven, as the first one must where two ranks are slowest.
  void improve() {
    const auto price = [&](const std::vector<int64_t>& ends) {
      return std::pair(sums_.micro_batch(ends), sums_.unevenness(ends));
    };
    std::vector<int64_t> now = best_;
    for (bool better = true; better;) {
      better = false;
      for (size_t from = 0; from < now.size(); ++from)
        for (size_t to = from + 1; to < now.size(); ++to)
          for (int64_t step : {-1, 1}) {
            std::vector<int64_t> moved = now;
            for (size_t stage = from; stage < to; ++stage) moved[stage] += step;
            if (!is_division(moved)) continue;
            const auto [time, uneven] = price(now);
            const auto [next_time, next_uneven] = price(moved);
            if (next_time > time * (1 + kSameTime) || next_uneven >= uneven * (1 - kSameTime)) continue;
            now = std::move(moved);
            better = true;
          }
    }
    keep(now);
  }

  // Shorter and shorter longest stages, and for each the fastest slowest rank. No division is skipped that is faster:
  // one with a longest stage between those of two results has a slowest rank that takes as long as that of the first.
  void shorten(Pairs pairs) {
    constexpr double kLess = 1 - 2 * kSameTime;
    double stage_time = std::numeric_limits<double>::infinity();
    for (;;) {
      double rank_time = time_ * kLess;
      std::optional<std::vector<int64_t>> fastest;
      while (auto ends = ends_of_pairs(sums_, pairs, rank_time, stage_time)) {
        keep(*ends);
        rank_time = sums_.slowest(*ends) * kLess;
        fastest = std::move(ends);
      }
      if (!fastest) return;
      stage_time = sums_.longest(*fastest) * kLess;
    }
  }

  bool is_division(const std::vector<int64_t>& ends) const {
    for (size_t stage = 0; stage < ends.size(); ++stage) {
      const int64_t begin = stage == 0 ? 0 : ends[stage - 1];
      if (begin > ends[stage] || !sums_.fits(static_cast<int64_t>(stage), begin, ends[stage])) return false;
    }
    return true;
  }

  void go(int64_t stage, int64_t begin) {
    if (++visits_ > kMostVisits) return;
    if (stage == sums_.stages()) {
      if (begin == sums_.blocks()) keep(ends_);
      return;
    }
    double& busy = busy_.at(sums_.rank(stage));
    const double before = busy, cuts = so_far_;
    for (int64_t end = begin; end <= sums_.blocks() && finished(); ++end) {
      const double own = sums_.seconds(stage, begin, end);
      busy = before + own;
      if (busy + sums_.fill() * own > limit() || !sums_.fits(stage, begin, end)) break;
      so_far_ = cuts + (stage + 1 < sums_.stages() ? sums_.cut(end) : 0);
      ends_[static_cast<size_t>(stage)] = end;
      if (may_help(stage, end)) go(stage + 1, end);
    }
    busy = before;
    so_far_ = cuts;
  }

  // Whether the ranks that still have stages can take the rest.
  bool may_help(int64_t stage, int64_t end) const {
    if (for_bytes_ && so_far_ >= cuts_) return false;
    double room = 0;
    for (const auto& [rank, busy] : busy_)
      if (last_.at(rank) > stage) room += (limit() - busy) * sums_.speed(rank);
    const double rest = sums_.work(end, sums_.blocks());
    return rest <= room * (1 + kSameTime);
  }

  const Sums& sums_;
  std::vector<int64_t> best_, ends_;
  std::map<int64_t, double> busy_;   // by rank, so far
  std::map<int64_t, int64_t> last_;  // by rank, its last stage
  double time_ = 0, cuts_ = 0, so_far_ = 0;
  bool for_bytes_ = false;
  int64_t visits_ = 0;
};

}  // namespace

Dealt search(const Sums& sums, const std::vector<int64_t>& start) {
  return Search(sums, start).run();
}

}  // namespace tessera::stages
