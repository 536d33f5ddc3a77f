#pragma once

#include <optional>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// The tensor that a Constant node gives; nullopt for sparse ones and strings.
std::optional<Tensor> literal(const Node& node);

/// Whether a constant is a weight, which is a state wherever the file keeps it: large and floating. Small ones stay
/// constants, for shapes and folding may need their elements; and so do matrices of one or two numbers, which are
/// masks, for raising looks at these.
bool is_weight(const Tensor& data);

}  // namespace tessera::rewrite
