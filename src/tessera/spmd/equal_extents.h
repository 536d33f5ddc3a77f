#pragma once

#include <vector>

#include "tessera/ops/rule.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// What a node takes to be equal although the expressions differ: extents along which one factor of its rule runs, and
/// extents of a result as they are stated and as they follow from its operands. (Rewriting gives one name to extents
/// that some operator needs to be equal; where they come from, they still have their own.)
///
///     x [batch, s] + y [batch, t]: s = t, or one of them is 1
std::vector<ExtentEquality> equal_extents_of(const Node& node, const ops::Rule& rule);

}  // namespace tessera::spmd
