#pragma once

#include <string>

#include "tessera/ir/graph.h"

/// What a trained model's parameters hold: initializers of its graph, or what Constant nodes make.
namespace tessera::train {

/// Throws a user error if a tensor of that type cannot be the value of the parameter `name`.
void require_parameter(const Graph& graph, const std::string& name, DType dtype, const Dims& dims);

/// Gives it that value. Throws as require_parameter() does.
void set_parameter(Graph& graph, const std::string& name, const Tensor& value);

}  // namespace tessera::train
