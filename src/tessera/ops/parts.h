#pragma once

#include <cstddef>

#include "tessera/ir/graph.h"
#include "tessera/ops/library/infer.h"

/// Operators that only put tensors together, or take them apart.
namespace tessera::ops {

/// Whether a node joins its operands.
inline bool joins(const Node& node) {
  return node.is("Concat");
}
/// The dimension along which it does, of so many.
inline size_t joined_dim(const Node& node, size_t rank) {
  return normalize_axis(node, node.get_int("axis", 0), rank);
}

/// Whether a node takes a part of its first operand.
inline bool takes_part(const Node& node) {
  return node.is("Slice");
}

}  // namespace tessera::ops
