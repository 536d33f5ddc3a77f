#pragma once

#include <vector>

#include "tessera/ir/graph.h"

/// Reverse-mode differentiation, from ONNX to ONNX: each operator's record (OpDef) contains its gradient
/// (ops/gradients/gradient.h).
namespace tessera::train {

/// A float scalar that is differentiated.
struct Root {
  Value* value = nullptr;
  Value* seed = nullptr;  ///< its own gradient, a scalar of its type; null: 1
};

/// Appends nodes that compute the gradients of a sum of scalars, each times its seed, by the values `of`, and returns
/// them in that order; each has the type and shape of its value, and is null where no root depends on it. Contributions
/// of several uses are added in the order of the graph's nodes from the last to the first. Values that are not floats
/// have no gradient. Reads no node before the first on which a root depends.
///
/// Throws a user error, stage "gradient", that names the operator and the path from it to a value of `of` if a root
/// depends on this value through an operator that has no gradient.
std::vector<Value*> gradients(Graph& graph, const std::vector<Root>& roots, const std::vector<Value*>& of);

}  // namespace tessera::train
