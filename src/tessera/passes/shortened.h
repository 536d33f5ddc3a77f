#pragma once

#include "tessera/spmd/program.h"

namespace tessera::passes {

/// A program with fewer of the sections that repeat in it, to stand for it where only times are asked, which it has at
/// less cost: of blocks that follow each other and are alike, the first ones, each for forward pass, backward pass and
/// updates. It computes something else. With two blocks kept of six (h: activations, g: their gradients, w: states):
///
///     h1 = f (h0, w1) … h6 = f (h5, w6)     h1 = f (h0, w5), h2 = f (h1, w6)
///     g5 = b (g6, h6, w6) … g0 = b (…)      g5 = b (g6, h2, w6), g4 = b (g5, h1, w5)
///
/// What reads a value of a block that is gone reads the same of the kept block that stands for it: of every second one
/// the first, of the others the second. So do states and their next values, which makes the passes fit together.
///
/// Nodes are alike if their operators, axes and all their values' types are equal, so any kept node has operands of the
/// types that it had, made before it. Without repetitions, the result is a copy. For programs without messages and
/// control flow.
spmd::Program shortened(const spmd::Program& program);

}  // namespace tessera::passes
