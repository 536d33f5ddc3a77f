#pragma once

#include <limits>
#include <set>
#include <vector>

#include "tessera/spmd/decide/partial_terms.h"
#include "tessera/spmd/decide/versions.h"
#include "tessera/spmd/decide/wishes.h"

namespace tessera::spmd {

/// The cost of a choice: annotations count before all else.
struct Price {
  int disobeyed = 0;  ///< annotated results that are computed in another layout
  int gathered = 0;   ///< annotated states that are not used in their stored layout
  double cost = 0;    ///< bytes moved, or seconds (Costs)

  auto operator<=>(const Price&) const = default;
  Price& operator+=(const Price& other) {
    disobeyed += other.disobeyed;
    gathered += other.gathered;
    cost += other.cost;
    return *this;
  }
};
inline constexpr Price kWorst{std::numeric_limits<int>::max(), 0, 0};

/// Whether the node has a priced factor (ops::FactorTraits).
bool is_priced(const NodeLayout& node);

/// What is known so far, while nodes are decided one after the other.
struct Decided {
  PartialTerms::Versions versions;    ///< of results, the first as produced
  ValueSet wide;                      ///< partial values that are held in float32 if 16-bit
  ValueSet fetched;                   ///< fetched_values()
  const Decisions* before = nullptr;  ///< of the earlier pass, if there is one
  const Wishes* wishes = nullptr;     ///< of its uses
};

/// The price of a way to compute a node: of bringing its operands into the layouts that it needs and its results into
/// the layouts of their uses, on a machine also of computing it; and the annotations that it does not follow.
class Prices {
 public:
  /// All arguments outlive it; `decided` may change.
  Prices(const Layout& layout, const Costs& costs, const Storage& storage, const PartialTerms& terms,
         const Decided& decided);

  /// May stop at `most`: returns a price of at least `most` if the true one is higher.
  Price of(const NodeLayout& node, const Assignment& assignment, const Price& most) const;

 private:
  double moving(const Sharding& from, const Sharding& to, const Moved& of) const;
  Price operand_cost(const NodeLayout& node, size_t t, const Sharding& wanted) const;
  bool is_wanted_by_others(const NodeLayout& node, size_t t, const Sharding& wanted) const;
  double use_cost(const Slot& slot, const Sharding& produced) const;
  double share_of_reduction(const NodeLayout& node, const std::vector<PartialAxis>& axes) const;
  bool was_partial(const Value& value, const std::vector<PartialAxis>& axes) const;
  Price result_cost(const NodeLayout& node, size_t t, const Sharding& produced) const;

  const Layout& layout_;
  const Costs& costs_;
  const Storage& storage_;
  const PartialTerms& terms_;
  const Decided& decided_;
  const ValueSet ordered_states_;
};

}  // namespace tessera::spmd
