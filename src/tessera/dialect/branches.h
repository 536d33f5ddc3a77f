#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

namespace tessera::dialect {

/// The conditions of a graph's Ifs that follow from the rank's number (from RankId, AxisIndex and constants, through
/// ONNX's operators), as expressions over axis indices: 1 if the condition holds, else 0. Inline functions before.
///
/// Example: If (Equal (AxisIndex <axis = "pp">, 1)) has the condition 1 - min(1, max(@pp - 1, 1 - @pp)).
std::vector<Expr> branch_conditions(Graph& graph, const Mesh& mesh);

/// Replaces every If with such a condition by the nodes of the branch that the rank takes. The branch's results take
/// over the names of the If's results, with the metadata that the branch gives them. An Identity in the branch is
/// replaced by its operand, unless an output of the graph needs the name. Other Ifs stay, and so do Ifs inside the
/// branch. Nothing else is bound to the rank, so any rank with the same conditions gives the same graph.
void choose_branches(Graph& graph, const Mesh& mesh, int64_t rank);

}  // namespace tessera::dialect
