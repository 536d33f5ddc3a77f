#pragma once

#include "tessera/bind/places.h"

namespace tessera::bind {

/// The packed form of a weight, which a step reads instead of the weight.
struct PackedWeight {
  Node node;  ///< runs instead of the group's root, and has the same operands
  kernels::TensorDesc type;
  Location place;
};

/// The packed weights, by step. A step whose operand 1 is a weight that the device packs reads the packed form with
/// another operator. So does a step whose operand is a view of a weight, if the view's elements are contiguous.
class PackedWeights {
 public:
  PackedWeights() = default;
  PackedWeights(Rank& rank, const std::vector<NodeGroup>& groups, const Values& values);

  /// The packed form of operand `index` of the step; null if it is not packed.
  const PackedWeight* find(int step, size_t index) const;
  /// The operator that runs the step if one of its operands is packed; null: the group's root does.
  const Node* node_of(int step) const;

 private:
  std::map<int, PackedWeight> by_step_;
};

}  // namespace tessera::bind
