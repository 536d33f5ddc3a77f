#pragma once

#include <string>
#include <vector>

#include "tessera/ir/graph.h"

/// Lists of tensors, as which ONNX's sequences are lowered: nodes that only name their operands. They are gone when
/// folding ends.
namespace tessera::rewrite {

Value* add_list(Graph& graph, std::vector<Value*> tensors, const Node* before, const std::string& name = "");
/// Whether the value is a list whose tensors are known one by one: its producer's operands.
bool is_list(const Value& value);
/// Throws a user error if a node that takes tensors reads a list.
void refuse_read_lists(const Graph& graph);
/// Throws a user error if an output is a list.
void refuse_list_outputs(const Graph& graph);

}  // namespace tessera::rewrite
