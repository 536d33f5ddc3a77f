#pragma once

#include <optional>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// The tensor that a Constant node gives; nullopt for sparse ones and strings.
std::optional<Tensor> literal(const Node& node);

/// Whether a constant is a weight, and so a state wherever the file keeps it: large and floating. Small ones stay
/// constants, since shapes and folding may need their elements. So do matrices with only one or two different numbers,
/// which are masks, since raising looks at these.
bool is_weight(const Tensor& data);

}  // namespace tessera::rewrite
