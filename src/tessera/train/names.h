#pragma once

#include <string_view>

#include "tessera/ir/graph.h"

/// The names that a training step promises: of its outputs, its states, their next values and gradients.
namespace tessera::train {

/// Makes a name free: a result of the model with this name is renamed. A user error if an input or a parameter has it.
void claim_name(Graph& graph, std::string_view name);

/// Adds a state of exactly this name, which claim_name makes free.
Value* new_state(Graph& graph, std::string_view name, Tensor data);

}  // namespace tessera::train
