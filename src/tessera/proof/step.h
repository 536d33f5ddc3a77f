#pragma once

#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/proof/number.h"

namespace tessera::proof {

/// What a node does by itself, as a factor in numbers: its operator and attributes. Two operands of
/// commutative operators count in any order, and a copy (Identity) is what it copies.
class Step {
 public:
  explicit Step(const Node& node);

  /// What it makes of operands with these numbers; those that are left out have Number().
  Number of(std::vector<Number> operands) const;
  /// Its operator and attributes alone.
  const Mixer& begun() const { return begun_; }

 private:
  Mixer begun_;
  bool copies_, commutes_;
};

/// Of a step that has the number `step`, the result `index`.
Number result_number(const Number& step, size_t index);

}  // namespace tessera::proof
