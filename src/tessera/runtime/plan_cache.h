#pragma once

#include <map>
#include <memory>
#include <vector>

#include "tessera/runtime/rank_plan.h"

namespace tessera::runtime {

/// The plans of this process' ranks for the same sizes, in the ranks' order.
using PlanSet = std::vector<std::unique_ptr<RankPlan>>;

/// Plans by the sizes that they are for. Where a set is does not change while it is kept.
class PlanCache {
 public:
  /// Null: there is none. The set counts as used now.
  PlanSet* find(const Symbols& sizes);
  PlanSet& add(const Symbols& sizes, PlanSet plans);
  /// The set of these programs that was used last. Null: there is none.
  const PlanSet* latest_of(const std::shared_ptr<const RankPrograms>& programs) const;
  /// The set that was not used for the longest time; there must be one.
  PlanSet& oldest();
  void drop(const PlanSet& plans);
  void clear() { by_sizes_.clear(); }
  size_t size() const { return by_sizes_.size(); }
  /// Leaves all plans' tensors in memory for good, for communications that were under way as a run failed.
  void abandon_memory() const;

 private:
  struct Entry {
    PlanSet plans;
    uint64_t used = 0;  // when, in calls
  };
  std::map<Symbols, Entry> by_sizes_;
  uint64_t calls_ = 0;
};

}  // namespace tessera::runtime
