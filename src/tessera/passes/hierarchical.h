#pragma once

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// Splits collectives over links of several kinds into levels if the cost model predicts a gain at the program's hints:
/// an AllReduce over two hosts of four ranks becomes a ReduceScatter inside the hosts, an AllReduce between them and an
/// AllGather inside (passes/levels.h). Sums over near ranks come first; every rank gets the same bits. Collectives over
/// axes that the topology lacks stay as they are.
void hierarchical(spmd::Program& program, Context& context);

}  // namespace tessera::passes
