#pragma once

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// Moves nodes to where they free memory soonest. A node whose results need less memory than the operands that it reads
/// last runs as soon as its operands are ready, as do views, and communication whose results need no more memory. All
/// other nodes keep their order. For example, a gradient is reduced as soon as the backward pass has made it, which
/// frees the unreduced gradient:
///
///     dw2 = MatMul(…), dx = MatMul(…), dw1 = MatMul(…), g1 = ReduceScatter(dw1), g2 = ReduceScatter(dw2)
///     dw2 = MatMul(…), g2 = ReduceScatter(dw2), dx = MatMul(…), dw1 = MatMul(…), g1 = ReduceScatter(dw1)
///
/// In a pipeline, nodes stay in their cells (stage_order.h). The next value of a state stays after all earlier nodes
/// that read the state, so that it can be written in place. The order is made for the whole program, so all ranks
/// communicate in the same order.
void order(spmd::Program& program, Context& context);

}  // namespace tessera::passes
