#pragma once

#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::ops {

/// A value of which a gradient is known, of its type and shape.
struct KnownGradient {
  Value* value = nullptr;
  Value* gradient = nullptr;
};

/// Appends nodes that take gradients back through the nodes of `forward`, which are in the graph's order: the gradients
/// of Σ value · gradient over all that is known, by the values `of`, in that order. Each has the type and shape of its
/// value, and is null where nothing known depends on it. Contributions of several uses are added in the order of
/// `forward` from the last to the first. Values that are not floats pass nothing on.
///
/// Throws a user error, stage "gradient", that names the operator and the path to it from a value of `of` if something
/// known depends on this value through an operator that has no gradient.
std::vector<Value*> gradients_through(Graph& graph, const std::vector<Node*>& forward,
                                      const std::vector<KnownGradient>& known, const std::vector<Value*>& of);

}  // namespace tessera::ops
