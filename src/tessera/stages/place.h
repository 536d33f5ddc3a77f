#pragma once

#include <vector>

#include "tessera/stages/roles.h"

namespace tessera::stages {

/// By node, its stage; -1: none. `of_chain` has the stages of the nodes of Role::chain; they ascend along it.
///
/// - Computation with weights alone is where its first reader is.
/// - A node of the backward pass is where its gradient comes from, or at the nearest earlier stage that has the values
///   of the forward pass which it reads. What reads only such values (the mask of a ReLU) is where its reader is.
/// - Scalars that are summed over all stages are summed where the last of them is; what is computed from the sum alone
///   is of no stage, as is what needs no parameters.
/// - What is of no stage, but has readers at one stage only, is there.
std::vector<int> place_nodes(const Graph& graph, const OneBatch& batch, const Roles& roles, const Measure& measure,
                             const std::vector<int>& of_chain);

}  // namespace tessera::stages
