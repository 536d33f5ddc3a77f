#pragma once

#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/proof/number.h"

namespace tessera::proof {

/// A node's own contribution to numbers: its operator and attributes. The two operands of commutative operators count
/// in any order, and a copy (Identity) has its operand's number.
class Step {
 public:
  explicit Step(const Node& node);

  /// The number of the step on operands with these numbers; absent operands have Number().
  Number of(std::vector<Number> operands) const;
  /// The number of its operator and attributes alone.
  const Mixer& begun() const { return begun_; }

 private:
  Mixer begun_;
  bool copies_, commutes_;
};

/// The number of result `index` of a step that has the number `step`.
Number result_number(const Number& step, size_t index);

}  // namespace tessera::proof
