#pragma once

#include <vector>

#include "tessera/spmd/program.h"

/// A program in two graphs: what runs once, and what runs in every step. Example, with a state w that never changes:
///
///     w32 = Cast (w)                     init:  w32 = Cast (w)
///     y = MatMul (x, w32)         ─▶     step:  y = MatMul (x, w32), where w32 is a state that init makes
///
/// Both graphs call a tensor by one name. A state that only init reads stays listed in the step's graph, unused, since
/// it is the model's. A node whose result both graphs need is in both.
namespace tessera::spmd {

/// Moves the nodes that make these results of the step to the program's init, which must be empty. The results become
/// states of the step. They must depend on states that never change, constants and expressions of axis indices only.
/// Names that are not results of the step are ignored.
void move_to_init(Program& program, const std::vector<std::string>& results);

/// A copy with one graph, which computes in every step what init computes once: for proofs and comparisons, which then
/// need not know about init.
Program in_one_graph(const Program& program);

/// The names of the states that init makes.
std::vector<std::string> derived_states(const Program& program);

/// Whether a run reads or updates the state; false for a state that only init reads.
bool step_keeps(const Program& program, const Value* state);

}  // namespace tessera::spmd
