#pragma once

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// Moves nodes that depend only on constant states, constants and axis indices to the program's init
/// (spmd/partition/init.h), which each rank runs once: casts and products of weights, tables. Nodes that communicate,
/// that draw random numbers or whose extents depend on symbols stay in the step, with all that depends on them.
///
/// The results of init are kept in memory, so bytes decide which nodes belong to it:
/// - An operator that only moves elements of one tensor (Reshape, Transpose, Slice, Expand, …) stays in the step if the
///   step reads its result: there, it mostly is a view of its operand, and a product reads a transposed weight in
///   place.
/// - The results made from a state may have together up to twice its bytes, as a Cast of a 16-bit weight has.
/// - Results beyond that (tables made from constants, weights made from 8-bit ones) may take in addition
///   together as much as a twentieth of the program's states, or 1 MiB.
/// A node whose result is refused runs in the step, and its operands are considered next.
void init(spmd::Program& program, Context& context);

/// Moves the nodes that compute these values of the step to init, as far as they can run once: for a program that was
/// read, whose bytes were considered when it was written.
void move_to_init(spmd::Program& program, const std::vector<std::string>& results);

}  // namespace tessera::passes
