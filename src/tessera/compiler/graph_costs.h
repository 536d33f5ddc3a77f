#pragma once

#include "tessera/ir/graph.h"
#include "tessera/tensors.h"

namespace tessera::compiler {

/// What one step of a graph costs on one device.
struct GraphCosts {
  double flops = 0;                ///< a loop's body counts as often as its trip count says, if that is known
  double moved_bytes = 0;          ///< operands and results of all operators, once each
  double bytes_read = 0;           ///< of parameters; of a table that is only looked up, just the rows that it takes
  DType compute = DType::float32;  ///< the float type of most FLOPs
};

/// At these sizes of the graph's symbols.
GraphCosts costs_of(const Graph& graph, const SymbolSizes& sizes);

}  // namespace tessera::compiler
