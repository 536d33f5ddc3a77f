#pragma once

#include "tessera/ir/graph.h"

namespace tessera::program_io {

/// Turns values of kind expression into nodes that compute sizes from the inputs' shapes, so that the graph can be
/// written to a file.
void compute_sizes(Graph& graph);

}  // namespace tessera::program_io
