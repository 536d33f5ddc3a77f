#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ir/graph.h"
#include "tessera/tensors.h"

namespace tessera::compiler {

/// Values for all inputs of a graph, the same for the same seed (inspect.h says which). `sizes`: of all symbols of the
/// inputs. Throws a user error for an input without a shape, for a type without random values, and for the input with
/// which all take more than `memory_limit` bytes (0: what the machine has).
Tensors random_inputs(const Graph& graph, const SymbolSizes& sizes, uint64_t seed, size_t memory_limit);

}  // namespace tessera::compiler
