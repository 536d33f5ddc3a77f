#pragma once

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// Moves communications forward by the prices of a machine, so that they end before their results are needed: each
/// starts as late as it can, and still ends before its first reader runs and before the next communication over the
/// same axes starts. What computes its operand from states alone (a cast of a stored parameter) moves with it. Nodes
/// that compute keep their order. For example, where a product takes as long as the gather of its weight:
///
///     w1 = AllGather (v1), y = MatMul (x, w1), w2 = AllGather (v2), z = MatMul (y, w2)
///     w1 = AllGather (v1), w2 = AllGather (v2), y = MatMul (x, w1), z = MatMul (y, w2)
///
/// A communication moves only as far as the program's peak of memory is raised by no more than a twentieth (at least 1
/// MiB). The order is made for the whole program, so all ranks start communications in the same order. Without prices,
/// and in programs with control flow (ir/flow.h), nothing moves.
void early_starts(spmd::Program& program, Context& context);

}  // namespace tessera::passes
