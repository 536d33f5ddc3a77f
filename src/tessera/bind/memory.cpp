#include "tessera/bind/memory.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

#include "tessera/base/checked.h"

namespace tessera::bind {
namespace {

/// The buffers that have a place, by ascending offset: all of them, and those that live during each of some equal spans
/// of actions. Most buffers live within one span, so few others can be in their way.
class Placed {
 public:
  explicit Placed(const std::vector<Lifetime>& lifetimes) {
    int64_t last = 0;
    for (const Lifetime& life : lifetimes) {
      first_ = std::min<int64_t>({first_, life.first, life.last});
      last = std::max<int64_t>({last, life.first, life.last});
    }
    width_ = (last - first_) / kSpans + 1;
  }

  /// All that live at the same time as some action of `life`, and maybe others.
  const std::vector<size_t>& beside(const Lifetime& life) const {
    const auto [first, last] = spans_of(life);
    return first == last ? in_span_[first] : all_;
  }

  void add(size_t index, const Lifetime& life, const std::vector<size_t>& offsets) {
    const auto insert = [&](std::vector<size_t>& list) {
      list.insert(std::upper_bound(list.begin(), list.end(), offsets[index],
                                   [&](size_t offset, size_t other) { return offset < offsets[other]; }),
                  index);
    };
    insert(all_);
    const auto [first, last] = spans_of(life);
    for (size_t span = first; span <= last; ++span) insert(in_span_[span]);
  }

 private:
  static constexpr int64_t kSpans = 64;

  std::pair<size_t, size_t> spans_of(const Lifetime& life) const {
    const auto [first, last] = std::minmax(life.first, life.last);
    return {static_cast<size_t>((first - first_) / width_), static_cast<size_t>((last - first_) / width_)};
  }

  int64_t first_ = 0, width_ = 1;
  std::vector<size_t> all_;
  std::array<std::vector<size_t>, kSpans> in_span_;
};

}  // namespace

MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes) {
  constexpr size_t kAlignment = 64;
  auto aligned = [](size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; };
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  MemoryPlan plan;
  plan.offsets.assign(lifetimes.size(), 0);
  Placed placed(lifetimes);
  for (size_t index : order) {
    const Lifetime& life = lifetimes[index];
    size_t bytes = aligned(life.bytes), offset = 0;
    for (size_t other : placed.beside(life)) {
      const Lifetime& taken = lifetimes[other];
      if (taken.last < life.first || life.last < taken.first) continue;
      if (offset + bytes <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + aligned(taken.bytes));  // within plan.bytes
    }
    plan.offsets[index] = offset;
    plan.bytes = std::max(plan.bytes, checked_add(offset, bytes, "a rank's buffers"));
    placed.add(index, life, plan.offsets);
  }
  return plan;
}

std::vector<size_t> alive_at_peak(const std::vector<Lifetime>& lifetimes) {
  std::map<int, std::pair<size_t, size_t>> changes;  // by action: bytes that are allocated, and bytes that are freed
  for (const Lifetime& life : lifetimes) {
    changes[life.first].first += life.bytes;
    changes[life.last + 1].second += life.bytes;
  }
  size_t now = 0, most = 0;
  int peak = 0;
  for (const auto& [action, bytes] : changes) {
    now += bytes.first;
    now -= bytes.second;
    if (now <= most) continue;
    most = now;
    peak = action;
  }
  std::vector<size_t> alive;
  for (size_t i = 0; i < lifetimes.size(); ++i)
    if (lifetimes[i].first <= peak && peak <= lifetimes[i].last) alive.push_back(i);
  return alive;
}

}  // namespace tessera::bind
