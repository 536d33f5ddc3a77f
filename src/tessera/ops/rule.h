#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/expr.h"
#include "tessera/ir/reduction.h"

namespace tessera::ops {

/// What splitting a factor over ranks means for an operator.
enum class FactorKind {
  pass,       ///< in operands and result: each rank computes its own part, nothing else
  reduction,  ///< in operands only: each rank's result is partial by `reduction`
  lookup,     ///< an indexed dimension of a table: each rank looks up what falls into its part, the result is a partial
              ///< sum
  index,      ///< like pass, but the local operator takes its global offset
  whole,      ///< must be gathered
};

/// An iteration dimension of an operator.
struct Factor {
  std::string name;
  Expr size = 1;
  FactorKind kind = FactorKind::pass;
  Reduction reduction = Reduction::sum;
};

/// One dimension of an operand or result: the factors whose product it is, major to minor. Empty: no factor runs along
/// it (extent 1, broadcast, or of no interest); it must be whole.
using DimFactors = std::vector<int>;

/// Operands that may be partial together under a reduction, the result then being partial the same way: for Add and sum
/// {0, 1}; for MatMul {0} and {1}. Anything else is reduced first.
struct PartialSet {
  Reduction reduction = Reduction::sum;
  std::vector<int> operands;
  /// Operands that must be finite for that: a rank that holds nothing of a sum has zeros, and 0·inf is NaN.
  std::vector<int> finite = {};
};

/// An operator's sharding rule, stated once and read by propagation, partitioning, cost and tests. Built per node from
/// its shapes; prints as one line: "b m k, b k n -> b m n" (lower case passes; k is summed; other kinds are marked).
struct Rule {
  std::vector<Factor> factors;
  std::vector<std::vector<DimFactors>> operands;  ///< per operand, per dimension; empty for absent operands
  std::vector<std::vector<DimFactors>> results;
  std::vector<PartialSet> partials;

  /// Builds from a line: names separated by spaces, operands by commas, "1" for a dimension without a factor, "(b s)"
  /// for a product, "_" for an absent operand. A name only in operands is a sum; only in results, pass. Sizes come from
  /// `operand_shapes`/`result_shapes` where a dimension is a lone name, except where `sizes` are given.
  static Rule parse(std::string_view line, const std::vector<const Shape*>& operand_shapes,
                    const std::vector<const Shape*>& result_shapes);

  int add(std::string name, Expr size, FactorKind kind = FactorKind::pass, Reduction reduction = Reduction::sum);
  Factor& factor(std::string_view name);  ///< an internal error if there is none
  Rule& kind(std::string_view name, FactorKind kind, Reduction reduction = Reduction::sum);
  Rule& partial(Reduction reduction, std::vector<int> operands, std::vector<int> finite = {});

  /// "b m k, b k n -> b m n"; after a bar what is special: "| k: sum", "| v: lookup", "| a: whole".
  std::string str() const;
};

}  // namespace tessera::ops
