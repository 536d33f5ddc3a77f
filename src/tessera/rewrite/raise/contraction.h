#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tessera/ir/graph.h"

/// Sums of products, however their dimensions are ordered, merged and split on the way. Einsum writes such a sum as one
/// node; models write it as a chain of MatMul, Mul, ReduceSum, Transpose, Reshape and Expand.
namespace tessera::rewrite {

/// One factor: for each dimension of the value, the indices that run along it, slowest first. Dimensions of one element
/// have none.
struct Factor {
  Value* value = nullptr;
  std::vector<std::vector<int>> dims;
};

/// Reads values as sums of products, backwards from their results. All factors share one table of indices; an index
/// that a Reshape divides is split, also in factors that were read before.
class Contraction {
 public:
  /// The value itself, with a new index for each dimension.
  Factor whole(Value* value);
  /// A new index; none for an extent of 1.
  std::vector<int> index(const Expr& extent);

  /// The factors whose product, summed over all indices that `result` lacks, is the result. Values for which `ends` is
  /// true are not read further; it is not called for results of operators that only move elements. Nullopt if the sum
  /// repeats a term.
  using Ends = std::function<bool(const Factor&)>;
  std::optional<std::vector<Factor>> factors(const Factor& result, const Ends& ends);
  /// An operand of an element-wise operator (Add) whose result is `result`; nullopt if extents are not known to agree.
  std::optional<Factor> operand(const Factor& result, Value* value) const;

  /// The indices of some dimensions (of all: up to the rank), the slowest first. Equal lists mean equal elements in
  /// equal order.
  std::vector<int> flat(const Factor& factor, size_t from = 0, size_t to = SIZE_MAX) const;
  /// The indices that these have been split into so far.
  std::vector<int> parts(const std::vector<int>& indices) const;
  Expr extent(int index) const { return indices_[static_cast<size_t>(index)].extent; }

 private:
  struct Index {
    Expr extent;
    int outer = -1, inner = -1;  ///< what it was split into
  };
  struct Reading {
    const Ends& ends;
    std::vector<Factor> factors;
    std::vector<int> summed;
  };

  void read(const Factor& result, Reading& reading);
  /// The operand whose elements the result's node moves; nullopt if it moves none, or not in a way that indices
  /// express.
  std::optional<Factor> moved(const Factor& result);
  /// The operands of a sum of products, and the indices that it sums over; empty for other nodes.
  std::vector<Factor> operands(const Factor& result, std::vector<int>& summed);
  /// The first dimensions of an operand that broadcasts to the result.
  std::optional<Factor> broadcast(const Factor& result, Value* value, size_t dims) const;
  std::optional<std::vector<std::vector<int>>> regrouped(const Factor& factor, const Shape& shape);
  void append(int index, std::vector<int>& list) const;

  std::vector<Index> indices_;
};

}  // namespace tessera::rewrite
