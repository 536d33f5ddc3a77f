#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

namespace tessera::dialect {

/// Whether a node holds graphs, as If does.
bool has_branches(const Node& node);

/// The conditions of a graph's Ifs that follow from the rank's number (RankId, AxisIndex, and what ONNX's operators
/// make of them and of constants), over axis indices: 1 where the condition holds, else 0. Functions are to be inlined
/// before.
///
/// Example: If (Equal (AxisIndex <axis = "pp">, 1)) asks for 1 - min(1, max(@pp - 1, 1 - @pp)).
std::vector<Expr> branch_conditions(Graph& graph, const Mesh& mesh);

/// Puts, in the place of every If with such a condition, the nodes of the branch that the rank takes. What the branch
/// gives is called as the If's results were, and stands for what the branch says of it; an Identity in the branch is
/// what it copies, unless an output of the graph needs the name. Other Ifs stay, and so do those that the branch
/// brings. Nothing else is bound to the rank: of ranks on which the conditions come out alike, any will do.
void choose_branches(Graph& graph, const Mesh& mesh, int64_t rank);

}  // namespace tessera::dialect
