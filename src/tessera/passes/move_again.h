#pragma once

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// In a program that updates states, copies nodes that only move or cast elements to readers far behind the others, if
/// less memory is then needed in between: because the operand exists until then anyway, as a state does, or because it
/// is smaller than the result; and if this takes little of the time of these readers, or if memory must be freed
/// (Recompute::by_cost). For example, the backward pass casts a parameter again:
///
///     narrow = Cast(w), y = MatMul(x, narrow), …, dx = MatMul(dy, Transpose(narrow))
///     narrow = Cast(w), y = MatMul(x, narrow), …, narrow.again = Cast(w), dx = MatMul(dy, Transpose(narrow.again))
///
/// What depends on inputs alone, such as masks and positions, which all layers share, stays held.
void move_again(spmd::Program& program, Context& context);

/// Whether a rank makes the node's result by moving or casting its operand's elements, and nothing else.
bool moves_elements(const Node& node);

}  // namespace tessera::passes
