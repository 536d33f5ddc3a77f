#pragma once

#include "tessera/proof/report.h"
#include "tessera/proof/statement.h"

namespace tessera::proof {

/// What each communication does to the layout of the value that it moves, and what partial values go through.
///
/// Where operand and result of a communication have placements, both are of the global value that the node names, and
/// the one follows from the other: an all-reduce takes its axes from the partial ones, an all-gather from the dimension
/// that it gathers, and so on. Any other node may take a partial operand only if its rule says that it keeps the
/// reduction (Add of two partial sums; Mul of one), and its result is then partial in the same way.
///
/// Example: y = Relu(p), p = [-, -] partial(sum:tp): a finding of rule "partial", since Relu of a sum is no sum of
/// Relus. A value without a placement that depends on nothing partial may differ from rank to rank (a bias that one
/// rank alone adds), so it may meet partial ones.
///
/// A collective whose nodes are those of a function over Send and Recv is held to the same as a whole, and its function
/// must be known to do it (rule "function").
///
/// `ranks`: all that run the program at one place, so that they have the same of its values.
void check_layouts(const spmd::Program& program, const std::vector<Communication>& communications,
                   const std::vector<int>& ranks, Report& report);

/// Every operator is given what its rule allows on shards: dimensions along one factor are split alike, those that it
/// needs whole are whole, and the result of a reduction over a split dimension is partial.
///
/// Example: Gather (table, rows) with the rows of the table split gives each rank other rows: a finding of rule
/// "layout". (The local form of a split lookup has steps without placements, which mask what a rank does not hold.)
void check_factors(const spmd::Program& program, int64_t rank, Report& report);

/// Every node's result is of the type that is stated for it, and every value with a placement of the extents that
/// follow from it, on a rank and for a few sizes of the symbols.
void check_types(const spmd::Program& program, int64_t rank, Report& report);

/// What kernels read before a run, as the bounds of a Slice, is not computed in the run.
void check_values(const spmd::Program& program, int64_t rank, Report& report);

}  // namespace tessera::proof
