#pragma once

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// Moves nodes to where they free memory soonest. A node whose results need less memory than the operands that it reads
/// last runs as soon as its operands are ready, as do views and communications whose results need no more. All others
/// keep their order. So a gradient is reduced as soon as the backward pass has made it, and its whole is gone:
///
///     dw2 = MatMul(…), dx = MatMul(…), dw1 = MatMul(…), g1 = ReduceScatter(dw1), g2 = ReduceScatter(dw2)
///     dw2 = MatMul(…), g2 = ReduceScatter(dw2), dx = MatMul(…), dw1 = MatMul(…), g1 = ReduceScatter(dw1)
///
/// The next value of a state stays behind all nodes before it that read the state, so that it can be written in place.
/// The order is that of the whole program, so all ranks communicate in the same one.
void order(spmd::Program& program, Context& context);

}  // namespace tessera::passes
