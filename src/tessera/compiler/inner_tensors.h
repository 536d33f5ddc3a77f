#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

/// Operands and results of nodes in functions and in bodies of control flow. A compiled model has them under other
/// names, or several times.
namespace tessera::compiler {

/// Visits the nodes of functions, and of bodies of control flow in the main graph and in functions, in an order that is
/// the same for a copy of the model. `index` counts them.
void for_each_inner_node(const OnnxModel& model,
                         const std::function<void(Graph& graph, Node& node, size_t index)>& visit);

enum class InnerRole { operand, result };

/// The label (rewrite/passes.h) of a tensor of the inner node `index`.
std::string inner_label(size_t index, InnerRole role, const std::string& tensor);

/// Puts an Identity with such a label at each operand and result of the inner nodes, and returns the labels. Device
/// annotations are moved accordingly. Operands whose elements must be known before a run get no label, nor do those
/// that a call leaves out.
///
///     y = MatMul (a, b)  →  c = Identity <label of a> (a);  d = Identity <label of b> (b);
///                           e = MatMul (c, d);  y = Identity <label of y> (e)
std::vector<std::string> label_inner_tensors(OnnxModel& model);

}  // namespace tessera::compiler
