#include "tessera/stages/sums.h"

#include <algorithm>
#include <numeric>

namespace tessera::stages {

Sums::Sums(const std::vector<Load>& blocks, const Deal& deal) : deal_(deal), loads_(blocks) {
  seconds_.push_back(0);
  fixed_.push_back(0);
  held_.push_back(0);
  for (const Load& block : blocks) {
    seconds_.push_back(seconds_.back() + block.seconds);
    fixed_.push_back(fixed_.back() + block.fixed);
    held_.push_back(held_.back() + block.held);
  }
}

double Sums::seconds(int64_t stage, int64_t begin, int64_t end) const {
  return between(seconds_, begin, end) / speed(rank(stage));
}

double Sums::memory(int64_t stage, int64_t begin, int64_t end) const {
  const double flying = deal_.in_flight.empty() ? 1 : deal_.in_flight[static_cast<size_t>(stage)];
  return between(fixed_, begin, end) + flying * between(held_, begin, end);
}

bool Sums::fits(int64_t stage, int64_t begin, int64_t end) const {
  return deal_.memory.empty() || memory(stage, begin, end) <= deal_.memory[static_cast<size_t>(stage)];
}

double Sums::cut(int64_t place) const {
  return place == 0 || place == blocks() ? 0 : loads_[static_cast<size_t>(place - 1)].cut;
}

std::vector<double> Sums::times(const std::vector<int64_t>& ends) const {
  std::vector<double> of_rank;
  for (int64_t stage = 0, begin = 0; stage < deal_.stages; begin = ends[static_cast<size_t>(stage++)]) {
    const auto own = static_cast<size_t>(rank(stage));
    if (own >= of_rank.size()) of_rank.resize(own + 1);
    of_rank[own] += seconds(stage, begin, ends[static_cast<size_t>(stage)]);
  }
  return of_rank;
}

double Sums::slowest(const std::vector<int64_t>& ends) const {
  const std::vector<double> of_rank = times(ends);
  return *std::max_element(of_rank.begin(), of_rank.end());
}

double Sums::longest(const std::vector<int64_t>& ends) const {
  double most = 0;
  for (int64_t stage = 0, begin = 0; stage < deal_.stages; begin = ends[static_cast<size_t>(stage++)])
    most = std::max(most, seconds(stage, begin, ends[static_cast<size_t>(stage)]));
  return most;
}

double Sums::micro_batch(const std::vector<int64_t>& ends) const {
  return slowest(ends) + deal_.fill * longest(ends);
}

double Sums::unevenness(const std::vector<int64_t>& ends) const {
  const std::vector<double> of_rank = times(ends);
  return std::inner_product(of_rank.begin(), of_rank.end(), of_rank.begin(), 0.0);
}

double Sums::all_cuts(const std::vector<int64_t>& ends) const {
  double sum = 0;
  for (size_t stage = 0; stage + 1 < ends.size(); ++stage) sum += cut(ends[stage]);
  return sum;
}

}  // namespace tessera::stages
