#pragma once

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// Collectives over links of several kinds go level by level where the cost model says that this pays at the program's
/// hints: an AllReduce over two hosts of four ranks becomes a ReduceScatter inside the hosts, an AllReduce between them
/// and an AllGather inside (passes/levels.h). Sums over the near ranks come first; every rank gets the same bits. Does
/// nothing where the topology knows nothing of a group's axes.
void hierarchical(spmd::Program& program, Context& context);

}  // namespace tessera::passes
