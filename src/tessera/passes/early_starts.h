#pragma once

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// Moves communications of what depends on states alone, such as stored parameters, forward by the prices of a machine,
/// so that they end before their results are needed. A rank's communications take place one after the other, on devices
/// those of one nearest axis: each of these starts as late as it can, at a time when no other takes place, and still
/// ends before its first reader runs. A cast of the parameter before it moves with it. Nodes that compute keep their
/// order. For example, where a product takes as long as the gather of its weight:
///
///     w1 = AllGather (v1), y = MatMul (x, w1), w2 = AllGather (v2), z = MatMul (y, w2)
///     w1 = AllGather (v1), w2 = AllGather (v2), y = MatMul (x, w1), z = MatMul (y, w2)
///
/// A communication of what another one makes, such as the second level of a reduce-scatter, starts once that one has
/// ended, and what is computed meanwhile comes before it.
///
/// A communication moves only as far as the program's peak of memory is raised by no more than a twentieth (at least 1
/// MiB). The order is made for the whole program, so all ranks start communications in the same order. Without prices,
/// on machines whose transfers move only while ranks wait, in pipelines, and in programs with control flow
/// (ir/flow.h), nothing moves.
void early_starts(spmd::Program& program, Context& context);

}  // namespace tessera::passes
