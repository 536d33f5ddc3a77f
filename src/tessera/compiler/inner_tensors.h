#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

/// Tensors that nodes in bodies of control flow and in functions take and give, which a compiled model has under other
/// names, or several times.
namespace tessera::compiler {

/// Visits the nodes in bodies of control flow, in the main graph and in functions, and those of functions, in an order
/// that a copy of the model has, too. `index` counts them.
void for_each_inner_node(const OnnxModel& model,
                         const std::function<void(Graph& graph, Node& node, size_t index)>& visit);

enum class InnerRole { operand, result };

/// The label (rewrite/passes.h) of a tensor of the inner node `index`.
std::string inner_label(size_t index, InnerRole role, const std::string& tensor);

/// Puts an Identity with such a label at each operand and result of the inner nodes, and returns the labels. What nodes
/// say for devices follows. Operands whose elements must be known before a run get none, nor do those that a call
/// leaves out.
///
///     y = MatMul (a, b)  →  c = Identity <label of a> (a);  d = Identity <label of b> (b);
///                           e = MatMul (c, d);  y = Identity <label of y> (e)
std::vector<std::string> label_inner_tensors(OnnxModel& model);

}  // namespace tessera::compiler
