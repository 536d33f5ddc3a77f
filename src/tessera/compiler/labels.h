#pragma once

#include <string>

#include "tessera/ir/graph.h"

/// Copies of tensors in bodies and functions, marked by labels (rewrite/passes.h), since names change when bodies are
/// opened and functions inlined.
namespace tessera::compiler {

/// An Identity of the value with that label, before `before` (null: at the end).
Value* labelled_copy(Graph& graph, Value* value, const std::string& label, const Node* before);
/// The same after the node that makes the value, or before all nodes if none does; all readers of the value then read
/// the copy.
Value* labelled_instead(Graph& graph, Value* value, const std::string& label);

}  // namespace tessera::compiler
