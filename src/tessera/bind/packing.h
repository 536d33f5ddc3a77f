#pragma once

#include "tessera/bind/places.h"

namespace tessera::bind {

/// The packed form of a weight, which a step reads instead of it.
struct PackedWeight {
  Node node;  ///< runs instead of the group's root; its operands are named as the root's
  kernels::TensorDesc type;
  Location place;
};

/// The packed weights, by step. A step whose operand 1 is a weight that the device packs reads the packed form, by
/// another operator. So does one whose operand is a view of a weight, if its elements are contiguous.
class PackedWeights {
 public:
  PackedWeights() = default;
  PackedWeights(Rank& rank, const std::vector<NodeGroup>& groups, const Values& values);

  /// The packed form that operand `index` of the step has; null: none.
  const PackedWeight* find(int step, size_t index) const;
  /// The operator that runs the step, where one of its operands is packed; null: the group's root.
  const Node* node_of(int step) const;

 private:
  std::map<int, PackedWeight> by_step_;
};

}  // namespace tessera::bind
