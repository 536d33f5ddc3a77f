#pragma once

#include <string>

#include "tessera/ir/graph.h"

/// Copies of tensors in bodies and functions that a label (rewrite/passes.h) marks, since their names change when these
/// are opened.
namespace tessera::compiler {

/// An Identity of the value with that label, before `before` (null: at the end).
Value* labelled_copy(Graph& graph, Value* value, const std::string& label, const Node* before);
/// The same behind the node that makes the value, or before all nodes if none does; all that read the value read the
/// copy.
Value* labelled_instead(Graph& graph, Value* value, const std::string& label);

}  // namespace tessera::compiler
