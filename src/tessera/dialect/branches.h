#pragma once

#include <cstdint>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

namespace tessera::dialect {

/// Whether a node holds graphs, as If does.
bool has_branches(const Node& node);

/// Puts, in the place of every If whose condition follows from the rank's number (RankId, AxisIndex, and what ONNX's
/// operators make of them and of constants), the nodes of the branch that the rank takes. What the branch gives is
/// called as the If's results were, and stands for what the branch says of it; an Identity in the branch is what it
/// copies, unless an output of the graph needs the name. Ifs in the branch are chosen from in their turn; other Ifs
/// stay. Functions are to be inlined before.
void choose_branches(Graph& graph, const Mesh& mesh, int64_t rank);

}  // namespace tessera::dialect
