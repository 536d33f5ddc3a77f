#include "tessera/bind/memory.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "tessera/base/checked.h"

namespace tessera::bind {

MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes) {
  constexpr size_t kAlignment = 64;
  auto aligned = [](size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; };
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  MemoryPlan plan;
  plan.offsets.assign(lifetimes.size(), 0);
  std::vector<size_t> placed;  // by ascending offset
  for (size_t index : order) {
    const Lifetime& life = lifetimes[index];
    size_t bytes = aligned(life.bytes), offset = 0;
    for (size_t other : placed) {
      const Lifetime& taken = lifetimes[other];
      if (taken.last < life.first || life.last < taken.first) continue;
      if (offset + bytes <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + aligned(taken.bytes));  // within plan.bytes
    }
    plan.offsets[index] = offset;
    plan.bytes = std::max(plan.bytes, checked_add(offset, bytes, "a rank's buffers"));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](size_t value, size_t other) { return value < plan.offsets[other]; }),
                  index);
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
