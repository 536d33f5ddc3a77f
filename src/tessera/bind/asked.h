#pragma once

#include <algorithm>
#include <vector>

#include "tessera/bind/groups.h"
#include "tessera/ir/value_map.h"

namespace tessera::bind {

/// Records the values that each decision of a sequence has read. If some values change, only the decisions that read
/// them can change.
///
/// Example: decision 0 reads the extents of x and y, decision 1 those of y. If x changes, decision 0 must be made
/// again; if y changes, both.
class Asked {
 public:
  /// Wraps `values` so that each read is noted under the current decision. Both objects must outlive the result.
  Bound noted(const Bound& values) {
    return {[this, &values](const Value* value) {
              note(value);
              return values.type(value);
            },
            [this, &values](const Value* value) {
              note(value);
              return values.ints(value);
            }};
  }
  size_t decision = 0;

  /// The decisions that read one of these, in order.
  std::vector<size_t> of(const std::vector<const Value*>& values) const {
    std::vector<size_t> decisions;
    for (const Value* value : values)
      if (const auto* found = by_value_.find(value)) decisions.insert(decisions.end(), found->begin(), found->end());
    std::sort(decisions.begin(), decisions.end());
    decisions.erase(std::unique(decisions.begin(), decisions.end()), decisions.end());
    return decisions;
  }

 private:
  void note(const Value* value) {
    if (!value || value->has_data()) return;  // data never change
    std::vector<size_t>& askers = by_value_[value];
    if (askers.empty() || askers.back() != decision) askers.push_back(decision);
  }

  ValueMap<std::vector<size_t>> by_value_;
};

}  // namespace tessera::bind
