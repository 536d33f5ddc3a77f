#pragma once

#include <vector>

#include "tessera/ops/node_builder.h"

namespace tessera::ops {

/// The result of an Experts node (ir/experts.h) by ordinary operators, in a form in which every expert computes all
/// tokens.
Value* every_expert(NodeBuilder& b, const Node& node);

}  // namespace tessera::ops
