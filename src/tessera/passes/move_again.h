#pragma once

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// In a program that updates states, copies nodes that only move or cast elements to readers far behind the others, if
/// less memory is then needed in between: because the operand exists until then anyway, as a state does, or because it
/// is smaller than the result. For example, the backward pass casts a parameter again:
///
///     narrow = Cast(w), y = MatMul(x, narrow), …, dx = MatMul(dy, Transpose(narrow))
///     narrow = Cast(w), y = MatMul(x, narrow), …, narrow.again = Cast(w), dx = MatMul(dy, Transpose(narrow.again))
///
/// What depends on inputs alone, such as masks and positions, which all layers share, stays held.
void move_again(spmd::Program& program, Context& context);

}  // namespace tessera::passes
