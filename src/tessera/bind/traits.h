#pragma once

#include "tessera/ir/collective.h"
#include "tessera/spmd/program.h"

/// Properties of nodes and values that the passes need.
namespace tessera::bind {

inline bool is_communication(const Node& node) {
  return node.domain == spmd::kCommDomain;
}

/// The collective of a communication; null for an unknown one.
inline const CollectiveTraits* collective_of(const Node& node) {
  const auto kind = is_communication(node) ? collective_of_op(node.op_type) : std::nullopt;
  return kind ? &traits_of(*kind) : nullptr;
}

/// Whether a communication's result may be in its operand's memory: members send and receive the same extents.
inline bool takes_over_operand(const Node& node) {
  const CollectiveTraits* traits = collective_of(node);
  return traits && traits->reduces && traits->block == BlockSide::none && traits->root == RootRole::none;
}

/// 0 if an element is smaller than a byte.
inline size_t element_bytes(DType dtype) {
  return static_cast<size_t>(bits_of(dtype)) / 8;
}

}  // namespace tessera::bind
