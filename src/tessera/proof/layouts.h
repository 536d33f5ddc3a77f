#pragma once

#include <map>
#include <string>

#include "tessera/proof/report.h"
#include "tessera/proof/statement.h"

namespace tessera::proof {

/// Checks how communication changes the layouts of values, and which operators use partial values.
///
/// If operand and result of a communication have placements, both must be of the global value that the node names, and
/// the result's placement must follow from the operand's: an all-reduce removes its axes from the partial ones, an
/// all-gather from the dimension that it gathers, and so on. Any other node may use a partial operand only if its rule
/// allows it (Add of two partial sums; Mul of one), and its result is then partial in the same way.
///
/// Example: y = Relu(p), p = [-, -] partial(sum:tp): a finding of rule "partial", since Relu of a sum is not the sum of
/// Relus. A value without a placement that depends on nothing partial may differ from rank to rank (a bias that only
/// one rank adds), so it may combine with partial ones.
///
/// A lowered collective consists of the nodes of a function over Send and Recv. These must have the collective's effect
/// as a whole, and the function must be proved to compute it (rule "function").
///
/// `ranks`: those that run the program at one place.
void check_layouts(const spmd::Program& program, const std::vector<Communication>& communications,
                   const std::vector<int>& ranks, Report& report);

/// Checks that every operator's operands are split as its rule allows: dimensions along one factor are split alike,
/// dimensions that the operator needs whole are whole, and the result of a reduction over a split dimension is partial.
///
/// Example: Gather (table, rows) with split rows of the table gives each rank different rows: a finding of rule
/// "layout". (The local form of a split lookup has steps without placements, which mask rows that a rank lacks.)
void check_factors(const spmd::Program& program, int64_t rank, Report& report);

/// Checks that every node's result has its stated type, and that every value with a placement has the extents that
/// follow from it, on one rank and for a few sizes of the symbols.
void check_types(const spmd::Program& program, int64_t rank, Report& report);

/// Checks that inputs and nodes' results have the types that the program's file states for their names, on one rank and
/// for a few sizes of the symbols.
void check_stated(const spmd::Program& program, const std::map<std::string, TensorType>& stated, int64_t rank,
                  Report& report);

/// "float32[batch, 64]"; "[batch, 64]" if the element type is unknown.
std::string text_of(const TensorType& type);

/// The finding that a file states a different type for a value than its node (or, for an input, the program) implies.
/// `where`: appended to the message.
Finding misstated(const Value& value, const TensorType& stated, int64_t rank, const std::string& where = "");

/// Checks that operands which kernels read before the run, such as the bounds of a Slice, are not computed during the
/// run.
void check_values(const spmd::Program& program, int64_t rank, Report& report);

}  // namespace tessera::proof
