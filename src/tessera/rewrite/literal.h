#pragma once

#include <optional>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// The tensor of a Constant node; nullopt for sparse tensors and strings.
std::optional<Tensor> literal(const Node& node);

/// Whether a constant is a weight, and so a state wherever the file stores it: a large tensor of floats. Small ones
/// stay constants, since shapes and folding may need their elements. So do matrices with only one or two different
/// numbers, which are masks, since raising reads these.
bool is_weight(const Tensor& data);

}  // namespace tessera::rewrite
