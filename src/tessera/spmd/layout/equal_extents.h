#pragma once

#include <vector>

#include "tessera/ops/rule.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// The extents that a node assumes to be equal although their expressions differ: extents along one factor of its rule,
/// and a result's declared extents and those inferred from its operands. (Rewriting gives one name to extents that some
/// operator needs to be equal; at their origin, they still have their own names.)
///
///     x [batch, s] + y [batch, t]: s = t, or one of them is 1
std::vector<ExtentEquality> equal_extents_of(const Node& node, const ops::Rule& rule);

}  // namespace tessera::spmd
