#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ir/graph.h"

/// Lists of tensors, to which ONNX's sequences are lowered: nodes that only name their operands. After folding there
/// are none.
namespace tessera::rewrite {

/// Throws ops::NotInOneProgram: the number of a list's tensors depends on a symbolic extent, and the model can be
/// compiled once the symbol has a size. `what` names the extent: "the number of its iterations".
[[noreturn]] void refuse_unknown_size(const Node& node, std::string_view what, const Expr& extent);

/// Whether the value is a sequence that its producer makes from other sequences, tensors and positions, so that it can
/// be made again wherever these are known.
bool is_put_together(const Value& value);
/// Whether the value is a sequence; a branch or a loop may produce it, too.
bool is_sequence(const Value& value);

Value* add_list(Graph& graph, std::vector<Value*> tensors, const Node* before, const std::string& name = "");
/// Whether the value is a list whose tensors are known one by one: its producer's operands.
bool is_list(const Value& value);
/// Throws a user error if a node that takes tensors reads a list.
void refuse_read_lists(const Graph& graph);
/// Throws a user error if an output is a list.
void refuse_list_outputs(const Graph& graph);

}  // namespace tessera::rewrite
