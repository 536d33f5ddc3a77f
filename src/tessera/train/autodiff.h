#pragma once

#include <vector>

#include "tessera/ir/graph.h"

/// Reverse-mode differentiation, from ONNX to ONNX: each operator's record says what it adds (ops/gradient.h).
namespace tessera::train {

/// Appends nodes that compute the gradients of `loss`, a float scalar, by the values `of`, and returns them in that
/// order; each has the type and shape of its value, and is null where the loss does not depend on it. `seed`, a scalar
/// of the loss's type, is what the loss's own gradient is; null: 1. Contributions of several uses are added in the
/// order of the graph's nodes from the last to the first. Values that are no floats pass nothing on.
///
/// Throws a user error, stage "gradient", that names the operator and the path from it to a value of `of` if the loss
/// depends on this value through an operator that has no gradient.
std::vector<Value*> gradients(Graph& graph, Value* loss, const std::vector<Value*>& of, Value* seed = nullptr);

}  // namespace tessera::train
