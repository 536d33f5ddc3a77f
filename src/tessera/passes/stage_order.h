#pragma once

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// Puts the nodes of a pipeline's stages in the order of its table (Context::cells), and keeps their order within a
/// cell. A rank's program is a part of this order, so it computes its cells in the table's order; all ranks communicate
/// in one order, so no table makes them wait for ever.
///
/// A node belongs to a cell by its stage, its micro-batch and its pass (Node). A node of the backward pass computes the
/// gradient of the stage's input (I) if a node of a lower stage depends on it, or, in the first stage, another one
/// that reads results of the forward pass; else it computes gradients of weights (W). So where the table has both, it
/// divides the backward pass:
///
///     1f1b:  dx = MatMul (dy, w^T), dw = MatMul (x^T, dy), Permute dx      a B
///     zb-h1: dx = MatMul (dy, w^T), Permute dx                             an I
///            dw = MatMul (x^T, dy)                                         a W, some cells later
///
/// Other nodes come directly after the last cell that they need (messages to other stages, sums of gradients, updates),
/// or, if they need none, before the first that needs them, as do gathers and casts of parameters.
void stage_order(spmd::Program& program, Context& context);

}  // namespace tessera::passes
