#include "tessera/plan/peak_lines.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace tessera::plan {
namespace {

double bytes_of(const MemoryMoment& moment) {
  return static_cast<double>(moment.states + moment.activations + moment.gradients + moment.buffers);
}

// "wait for AllReduce" of "wait for AllReduce 'h.0'"
std::string_view kind_of(const MemoryMoment& moment) {
  return std::string_view(moment.operation).substr(0, moment.operation.find('\''));
}

using Pairs = std::vector<std::pair<size_t, size_t>>;

// Operations of equal names, in the order of both programs.
Pairs paired_by_name(const std::vector<MemoryMoment>& less, const std::vector<MemoryMoment>& more) {
  std::unordered_map<std::string_view, std::vector<size_t>> places;
  for (size_t i = more.size(); i-- > 0;) places[more[i].operation].push_back(i);
  Pairs pairs;
  for (size_t i = 0; i < less.size(); ++i) {
    const auto found = places.find(less[i].operation);
    if (found == places.end() || found->second.empty()) continue;
    pairs.emplace_back(i, found->second.back());
    found->second.pop_back();
  }
  return pairs;
}

// As many pairs as there are that come in one order in both programs. An operation that needs little may run early in
// one program and late in the other; what a rank holds meanwhile does not tell how it grows.
Pairs in_one_order(const Pairs& pairs) {
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  std::vector<size_t> last_of;  // by length: of the sequences so long, the pair at the end that comes first in `more`
  std::vector<size_t> before(pairs.size(), kNone);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto at = std::lower_bound(last_of.begin(), last_of.end(), pairs[i].second,
                                     [&](size_t last, size_t place) { return pairs[last].second < place; });
    if (at != last_of.begin()) before[i] = *(at - 1);
    if (at == last_of.end())
      last_of.push_back(i);
    else
      *at = i;
  }
  Pairs ordered;
  for (size_t i = last_of.empty() ? kNone : last_of.back(); i != kNone; i = before[i]) ordered.push_back(pairs[i]);
  std::reverse(ordered.begin(), ordered.end());
  return ordered;
}

// Pairs of operations on both sides of what only `more` has, between one pair and the next.
void pair_by_distance(Pairs& all, const std::pair<size_t, size_t>& one, const std::pair<size_t, size_t>& next,
                      const std::vector<MemoryMoment>& less, const std::vector<MemoryMoment>& more) {
  for (size_t k = 1; one.second + k < next.second && one.first + k < less.size(); ++k) {
    if (kind_of(less[one.first + k]) != kind_of(more[one.second + k])) break;
    all.emplace_back(one.first + k, one.second + k);
  }
  for (size_t k = 1; one.second + k < next.second && k <= next.first; ++k) {
    if (kind_of(less[next.first - k]) != kind_of(more[next.second - k])) break;
    all.emplace_back(next.first - k, next.second - k);
  }
}

double most_of(const HeldMemory& held) {
  double most = 0;
  for (const MemoryMoment& each : held.moments) most = std::max(most, bytes_of(each));
  return most;
}

}  // namespace

double peak_with(double blocks, const HeldMemory& less, const HeldMemory& more) {
  const Pairs named = in_one_order(paired_by_name(less.moments, more.moments));
  Pairs pairs = named;
  for (size_t i = 1; i < named.size(); ++i) pair_by_distance(pairs, named[i - 1], named[i], less.moments, more.moments);
  const double beyond = (blocks - more.blocks) / (more.blocks - less.blocks);
  double most = 0;
  for (const auto& [a, b] : pairs) {
    const double at_less = bytes_of(less.moments[a]), at_more = bytes_of(more.moments[b]);
    most = std::max(most, at_more + beyond * (at_more - at_less));
  }
  return std::max(most + std::max(less.peak - most_of(less), more.peak - most_of(more)), more.peak);
}

}  // namespace tessera::plan
