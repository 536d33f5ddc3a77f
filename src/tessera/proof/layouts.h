#pragma once

#include <map>
#include <string>

#include "tessera/proof/report.h"
#include "tessera/proof/statement.h"

namespace tessera::proof {

/// Checks how each communication changes the layout of its value, and which operators take partial values.
///
/// If operand and result of a communication have placements, both must be of the global value that the node names, and
/// the result's must follow from the operand's: an all-reduce removes its axes from the partial ones, an all-gather
/// from the dimension that it gathers, and so on. Any other node may take a partial operand only if its rule says that
/// it keeps the reduction (Add of two partial sums; Mul of one), and its result is then partial in the same way.
///
/// Example: y = Relu(p), p = [-, -] partial(sum:tp): a finding of rule "partial", since Relu of a sum is no sum of
/// Relus. A value without a placement that depends on nothing partial may differ from rank to rank (a bias that only
/// one rank adds), so it may combine with partial ones.
///
/// A lowered collective, which consists of the nodes of a function over Send and Recv, must do the same as a whole, and
/// its function must be known to do it (rule "function").
///
/// `ranks`: all that run the program at one place, so that they have the same parts of its values.
void check_layouts(const spmd::Program& program, const std::vector<Communication>& communications,
                   const std::vector<int>& ranks, Report& report);

/// Checks that every operator's operands are split as its rule allows: dimensions along one factor are split alike,
/// dimensions that it needs whole are whole, and the result of a reduction over a split dimension is partial.
///
/// Example: Gather (table, rows) with split rows of the table gives each rank different rows: a finding of rule
/// "layout". (The local form of a split lookup has steps without placements, which mask rows that a rank lacks.)
void check_factors(const spmd::Program& program, int64_t rank, Report& report);

/// Checks that every node's result has its stated type, and that every value with a placement has the extents that
/// follow from it, on one rank and for a few sizes of the symbols.
void check_types(const spmd::Program& program, int64_t rank, Report& report);

/// Checks that inputs and nodes' results, by their names, have these types, which the program's file states of them, on
/// one rank and for a few sizes of the symbols.
void check_stated(const spmd::Program& program, const std::map<std::string, TensorType>& stated, int64_t rank,
                  Report& report);

/// "float32[batch, 64]"; "[batch, 64]" if the element type is not known.
std::string text_of(const TensorType& type);

/// The finding that a file states another type for a value than follows from its node or, for an input, from the
/// program. `where`: appended to the message.
Finding misstated(const Value& value, const TensorType& stated, int64_t rank, const std::string& where = "");

/// Checks that the run does not compute operands that kernels read before it, such as the bounds of a Slice.
void check_values(const spmd::Program& program, int64_t rank, Report& report);

}  // namespace tessera::proof
