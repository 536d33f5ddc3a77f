#pragma once

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// Moves nodes to where they free memory soonest: a node whose results need less memory than what it reads last runs as
/// soon as its operands are ready, and so do a communication that needs no more and a view. All others keep their
/// order. So a gradient is reduced as soon as the backward pass has made it, and its whole is gone:
///
///     dw2 = MatMul(…), dx = MatMul(…), dw1 = MatMul(…), g1 = ReduceScatter(dw1), g2 = ReduceScatter(dw2)
///     dw2 = MatMul(…), g2 = ReduceScatter(dw2), dx = MatMul(…), dw1 = MatMul(…), g1 = ReduceScatter(dw1)
///
/// What a state takes over stays behind all nodes that read the state before it, so that it can be written over. The
/// order is that of the whole program, so all ranks communicate in the same one.
void order(spmd::Program& program, Context& context);

}  // namespace tessera::passes
