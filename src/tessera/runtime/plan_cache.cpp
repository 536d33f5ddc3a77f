#include "tessera/runtime/plan_cache.h"

#include <algorithm>
#include <utility>

#include "tessera/base/keep.h"

namespace tessera::runtime {

PlanSet* PlanCache::find(const Symbols& sizes) {
  const auto known = by_sizes_.find(sizes);
  if (known == by_sizes_.end()) return nullptr;
  known->second.used = ++calls_;
  return &known->second.plans;
}

PlanSet& PlanCache::add(const Symbols& sizes, PlanSet plans) {
  size_t bytes = 0;
  for (const auto& plan : plans) bytes += plan->bytes();
  bytes_ += bytes;
  return by_sizes_.emplace(sizes, Entry{std::move(plans), ++calls_, bytes}).first->second.plans;
}

const PlanSet* PlanCache::latest_of(const std::shared_ptr<const RankPrograms>& programs) const {
  const Entry* latest = nullptr;
  for (const auto& [sizes, entry] : by_sizes_)
    if (entry.plans.front()->programs() == programs && (!latest || entry.used > latest->used)) latest = &entry;
  return latest ? &latest->plans : nullptr;
}

PlanSet& PlanCache::oldest() {
  return std::min_element(by_sizes_.begin(), by_sizes_.end(),
                          [](const auto& a, const auto& b) { return a.second.used < b.second.used; })
      ->second.plans;
}

void PlanCache::drop(const PlanSet& plans) {
  const auto known = std::find_if(by_sizes_.begin(), by_sizes_.end(),
                                  [&](const auto& entry) { return &entry.second.plans == &plans; });
  if (known == by_sizes_.end()) return;
  bytes_ -= known->second.bytes;
  by_sizes_.erase(known);
}

void PlanCache::clear() {
  by_sizes_.clear();
  bytes_ = 0;
}

void PlanCache::abandon_memory() const {
  for (const auto& [sizes, entry] : by_sizes_)
    for (const auto& plan : entry.plans) {
      plan->abandon_memory();
      keep_for_good(plan->programs());
    }
}

}  // namespace tessera::runtime
