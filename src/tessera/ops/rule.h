#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/expr.h"
#include "tessera/ir/reduction.h"

namespace tessera::ops {

/// The effect of splitting a factor over ranks.
enum class FactorKind {
  pass,       ///< in operands and result: each rank computes its own part, nothing else
  reduction,  ///< in operands only: each rank's result is partial by `reduction`
  lookup,     ///< an indexed dimension of a table: each rank looks up indices in its part, the result is a partial sum
  index,      ///< like pass, but the local operator takes its global offset
  position,   ///< likewise, and it is another operator
  target,     ///< an indexed dimension that is written: each rank writes what falls into its part
  update,     ///< a written dimension: each rank writes its part, the result is partial by `reduction`
  norm,       ///< all along it counts for each result: the local form reduces over the ranks twice
  moment,     ///< the same, along features, not scores
  winner,     ///< one index along it is chosen: the local form reduces the extreme, then the indices that have it
  top,        ///< several indices along it are chosen: the local form gathers each rank's candidates
  scan,       ///< all before an element counts for it: the local form gathers what each rank's part comes to
  total,      ///< all along it is combined: the local form gathers what each rank's part comes to
  units,      ///< of a recurrence: each counts for all at the next step; the local form gathers them step by step
  halo,       ///< a result's elements read windows of an operand's: ranks fetch from others what their parts lack
  weighted,   ///< results are means along it, a rank's a term of the sum; the local form first reduces the weights
  whole,      ///< must be gathered
};

/// What becomes of a result where a factor is split.
enum class InResult {
  split,    ///< it is split alike
  partial,  ///< each rank has a part of the reduction
  whole,    ///< nothing: the factor cannot be split
};

/// All that is so of a kind of factor.
struct FactorTraits {
  std::string_view name;  ///< in a rule's line; there, a reduction has the name of its Reduction, and pass none
  InResult in_result = InResult::split;
  int level = 0;              ///< the level of propagation (spmd/propagate) from which axes spread along it
  bool one_interval = false;  ///< a rank's part must be one interval, so that only its major-most piece can be split
  bool own_form = false;      ///< where it is split, the local form is another operator: this one needs it whole
  bool follows_use = false;   ///< a rank that makes less of it needs no more of operands: it is split as uses want
  bool scores = false;        ///< of classes, or entries found by class: a product whose result has it is a
                              ///< model's head, whose weight may be split by class
  int reductions = 0;         ///< where it is split, the local form reduces the result without it so often over ranks
  int gathers = 0;            ///< where it is split, the local form gathers from each rank so many results without it
  bool regathers = false;     ///< where it is split, the local form gathers the first result along it, Factor::rounds
                              ///< times
  bool priced = false;        ///< it is split only where reducing the result moves less than gathering the operands
  bool by_window = false;     ///< operands have other extents along it than results, as Factor::windows says

  /// Whether the local form of what splits it communicates.
  bool communicates() const { return reductions + gathers > 0 || regathers; }
};

const FactorTraits& traits_of(FactorKind kind);

/// Elements begin … end - 1 of a dimension.
struct Interval {
  Expr begin, end;
  Expr count() const { return end - begin; }
};

/// Which elements of an operand's dimension the elements of a result's read: element j reads from
/// ⌊(j·times + first) / over⌋ to ⌊(j·times + last) / over⌋. Example: windows of 3 elements, 2 apart, after 1 element of
/// padding have times 2, first -1, last 1.
struct Window {
  /// What stands for those before the operand's first element, or behind its last.
  enum class Beyond {
    padding,   ///< nothing of the operand
    nearest,   ///< the element at that end
    mirrored,  ///< the element as far from that end, which is not repeated itself; none is further away than the other
  };

  int64_t times = 1, over = 1;
  Expr first = 0, last = 0;
  int64_t slack = 0;  ///< so many elements behind what a rank's results read do not change its local form's results
  Beyond beyond = Beyond::padding;

  /// What result elements begin … end - 1 read of an operand of `size` elements, as one interval, which has elements
  /// outside of the operand only if they are padding; an empty interval if there are no result elements.
  Interval reads(const Expr& begin, const Expr& end, const Expr& size) const;
};

/// An iteration dimension of an operator.
struct Factor {
  std::string name;
  Expr size = 1;
  FactorKind kind = FactorKind::pass;
  Reduction reduction = Reduction::sum;  ///< of partial results
  /// For a halo, whose size is the result's extent: how results read an operand, by the operand's number. Any other
  /// operand along it is split as results are.
  std::map<int, Window> windows = {};
  std::vector<int> flat = {};  ///< factors along which what the local form reduces has one element
  Expr rounds = 1;             ///< of units: how often ranks gather as much as their part of the first result

  bool can_be_split() const { return traits_of(kind).in_result != InResult::whole; }
  bool makes_partial() const { return traits_of(kind).in_result == InResult::partial; }
};

/// One dimension of an operand or result as a product of factors, major to minor. Empty: it has no factor (extent 1,
/// broadcast, or of no interest) and must be whole.
using DimFactors = std::vector<int>;

/// Operands that may be partial together under a reduction; the result is then partial under the same one. Add has the
/// set {0, 1} for sum; MatMul has {0} and {1}. Any other partial operand is reduced first.
struct PartialSet {
  Reduction reduction = Reduction::sum;
  std::vector<int> operands;
  /// Operands that must be finite for that: a rank without a term of the sum holds zeros, and 0·inf is NaN.
  std::vector<int> finite = {};
};

/// An operator's sharding rule, stated once and read by propagation, partitioning, cost and tests. Built per node from
/// its shapes; prints as one line: "b m k, b k n -> b m n" (lower case passes; k is summed; other kinds are marked).
struct Rule {
  std::vector<Factor> factors;
  std::vector<std::vector<DimFactors>> operands;  ///< per operand, per dimension; empty for absent operands
  std::vector<std::vector<DimFactors>> results;
  std::vector<PartialSet> partials;

  /// Builds a rule from a line: names separated by spaces, operands by commas, "1" for a dimension without a factor,
  /// "(b s)" for a product, "_" for an absent operand. A name that occurs only in operands is a sum; one that occurs
  /// only in results passes. `sizes` gives a factor's size; without it, the size comes from `operand_shapes` or
  /// `result_shapes` if a dimension is a lone name.
  static Rule parse(std::string_view line, const std::vector<const Shape*>& operand_shapes,
                    const std::vector<const Shape*>& result_shapes);

  int add(std::string name, Expr size, FactorKind kind = FactorKind::pass, Reduction reduction = Reduction::sum);
  /// A halo along which operand 0 is read in windows.
  int add_halo(std::string name, Expr size, Window window);
  Factor& factor(std::string_view name);  ///< an internal error if there is none
  Rule& kind(std::string_view name, FactorKind kind, Reduction reduction = Reduction::sum);
  Rule& partial(Reduction reduction, std::vector<int> operands, std::vector<int> finite = {});

  /// "b m k, b k n -> b m n"; the special factors follow a bar: "| k: sum", "| v: lookup", "| a: whole".
  std::string str() const;
};

}  // namespace tessera::ops
