#pragma once

#include "tessera/ir/graph.h"

namespace tessera::program_io {

/// Makes If and Loop nodes of the branches and bodies in a graph (ir/flow.h): the inverse of rewrite::open_regions. All
/// values have types.
void close_regions(Graph& graph);

}  // namespace tessera::program_io
