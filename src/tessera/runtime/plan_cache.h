#pragma once

#include <map>
#include <memory>
#include <vector>

#include "tessera/runtime/rank_plan.h"

namespace tessera::runtime {

/// The plans of this process' ranks for the same sizes, in the ranks' order.
using PlanSet = std::vector<std::unique_ptr<RankPlan>>;

/// Plans, by sizes. The address of a set does not change while it is kept.
class PlanCache {
 public:
  /// Null if there is none. Marks the set as used now.
  PlanSet* find(const Symbols& sizes);
  PlanSet& add(const Symbols& sizes, PlanSet plans);
  /// The most recently used set of these programs; null if there is none.
  const PlanSet* latest_of(const std::shared_ptr<const RankPrograms>& programs) const;
  /// The least recently used set; there must be one.
  PlanSet& oldest();
  void drop(const PlanSet& plans);
  void clear();
  size_t size() const { return by_sizes_.size(); }
  /// Of all plans, as RankPlan::bytes() estimates them.
  size_t bytes() const { return bytes_; }
  /// Leaves all plans' tensors in memory for good, for communications that were under way as a run failed.
  void abandon_memory() const;

 private:
  struct Entry {
    PlanSet plans;
    uint64_t used = 0;  // when, in calls
    size_t bytes = 0;
  };
  std::map<Symbols, Entry> by_sizes_;
  uint64_t calls_ = 0;
  size_t bytes_ = 0;
};

}  // namespace tessera::runtime
