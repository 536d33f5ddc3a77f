#pragma once

#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// The first node that computes one result from several samples, as the sum over a batch does, by the operators' rules;
/// null if none is seen to. `inputs` have the samples along their first dimensions. All values have types.
///
/// A value is known to have samples along the major-most part of one dimension: x [batch, 4] along its first one, and
/// so y [batch*4] = Reshape (x). Where rules do not say what becomes of them, they are lost sight of.
const Node* across_samples(const Graph& graph, const std::vector<const Value*>& inputs);

}  // namespace tessera::rewrite
