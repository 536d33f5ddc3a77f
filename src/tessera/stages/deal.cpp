// A rank for each stage: dynamic programming over ends of stages. With blocks of 3 1 1 3 seconds and two stages
//
//     slowest of the stages so far, if the second ends after block    0  1  2  3  4
//     one stage                                                       0  3  4  5  8
//     two stages                                                      0  3  3  3  4
//
// where the second row is the least, over all a, of the larger of one(a) and the blocks from a on. It gives 4; a second
// pass minimizes the bytes that cross, and then the squares of times, among the divisions in which no stage takes more.
// Both passes find, for each stage and end, the best beginning.
#include "tessera/stages/deal.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "tessera/stages/search.h"
#include "tessera/stages/sums.h"

namespace tessera::stages {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A first number that counts, and a second one that decides between equal ones.
using Price = std::pair<double, double>;

// The ends of all stages that make the price of the last end least. price(stage, begin, end, price of the stages
// before); infinite where it must not be.
std::vector<int64_t> cheapest_ends(
    int64_t stages, int64_t blocks,
    const std::function<Price(int64_t stage, int64_t begin, int64_t end, const Price& before)>& price) {
  const auto row = static_cast<size_t>(blocks + 1);
  const Price never{kNever, kNever};
  std::vector<Price> before(row, never);
  before[0] = {0, 0};
  std::vector<std::vector<int64_t>> begins(static_cast<size_t>(stages), std::vector<int64_t>(row));
  for (int64_t stage = 0; stage < stages; ++stage) {
    std::vector<Price> here(row, never);
    for (int64_t end = 0; end <= blocks; ++end)
      for (int64_t begin = end; begin >= 0; --begin) {
        if (before[static_cast<size_t>(begin)].first == kNever) continue;
        const Price sum = price(stage, begin, end, before[static_cast<size_t>(begin)]);
        if (!(sum < here[static_cast<size_t>(end)])) continue;  // of equal ones the shortest: late stages are empty
        here[static_cast<size_t>(end)] = sum;
        begins[static_cast<size_t>(stage)][static_cast<size_t>(end)] = begin;
      }
    before = std::move(here);
  }
  std::vector<int64_t> ends;
  if (before.back().first == kNever) return ends;
  for (int64_t stage = stages - 1, end = blocks; stage >= 0; --stage) {
    ends.push_back(end);
    end = begins[static_cast<size_t>(stage)][static_cast<size_t>(end)];
  }
  std::reverse(ends.begin(), ends.end());
  return ends;
}

Dealt deal_to_single(const Sums& sums, const Deal& deal) {
  const auto time = [&](int64_t stage, int64_t begin, int64_t end) {
    return sums.fits(stage, begin, end) ? sums.seconds(stage, begin, end) : kNever;
  };
  const auto fastest =
      cheapest_ends(deal.stages, sums.blocks(), [&](int64_t stage, int64_t begin, int64_t end, const Price& before) {
        return Price(std::max(before.first, time(stage, begin, end)), 0);
      });
  if (fastest.empty()) return {};
  const double limit = sums.slowest(fastest) * (1 + kSameTime);
  const auto ends =
      cheapest_ends(deal.stages, sums.blocks(), [&](int64_t stage, int64_t begin, int64_t end, const Price& before) {
        const double taken = time(stage, begin, end);
        if (taken > limit) return Price(kNever, kNever);
        return Price(before.first + (stage == 0 ? 0 : sums.cut(begin)), before.second + taken * taken);
      });
  return {counts_of(ends)};
}

}  // namespace

std::vector<int64_t> counts_of(const std::vector<int64_t>& ends) {
  std::vector<int64_t> counts(ends.size());
  std::adjacent_difference(ends.begin(), ends.end(), counts.begin());
  return counts;
}

Dealt deal_out(const std::vector<Load>& blocks, const Deal& deal) {
  const Sums sums(blocks, deal);
  std::vector<int64_t> ranks = deal.ranks_of;
  std::sort(ranks.begin(), ranks.end());
  const bool single = std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end();
  if (single) return deal_to_single(sums, deal);
  // A start for the search: stages alone, as fast as the rank's share for each of its stages.
  Deal apart = deal;
  apart.speeds.clear();
  for (int64_t stage = 0; stage < deal.stages; ++stage) {
    const auto own = std::count(ranks.begin(), ranks.end(), sums.rank(stage));
    apart.speeds.push_back(sums.speed(sums.rank(stage)) / static_cast<double>(own));
    apart.ranks_of[static_cast<size_t>(stage)] = stage;
  }
  const Dealt start = deal_to_single(Sums(blocks, apart), apart);
  if (start.counts.empty()) return start;
  std::vector<int64_t> ends(start.counts.size());
  std::partial_sum(start.counts.begin(), start.counts.end(), ends.begin());
  return search(sums, ends);
}

}  // namespace tessera::stages
