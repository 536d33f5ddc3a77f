#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <vector>

#include "tessera/ir/graph.h"

/// Queries of the raise_* passes about the nodes around a value.
namespace tessera::rewrite {

/// A product as its scalar constants, multiplied, and its other factors. x·x and Pow(x, 2) both give x twice; division
/// by a constant counts as multiplication.
struct Product {
  double coefficient = 1;
  std::vector<Value*> factors;
};

/// Factors of a value, through a dozen or so intermediate products that nothing else uses.
Product product_of(const Graph& graph, Value* value);

/// Strips multiplications and divisions by constants: value = scale · result.
Value* without_scale(Value* value, double& scale);

/// For an operator with two operands: the other one beside a constant scalar `expected` (either side); null if none is.
Value* beside_scalar(const Node* node, double expected);

/// Whether all uses are by these nodes, and the value is no graph output.
bool used_only_by(const Graph& graph, const Value* value, std::initializer_list<const Node*> nodes);

/// Whether what is computed from `from` on the way to `to` has no other use, and is no graph output: it vanishes if
/// `to` is computed in another way. Values beyond `stops` do not count, nor do elements of `from` that are only
/// moved.
bool used_only_between(const Graph& graph, const Value* from, const Value* to, const std::set<const Value*>& stops);

/// The only use, if the value is used once and is no graph output.
Node* only_user(const Graph& graph, const Value* value);

/// A slice of one axis with step 1.
struct Range1D {
  size_t axis = 0;
  int64_t start = 0;
  int64_t end = 0;  ///< at most the axis's extent
};
std::optional<Range1D> slice_of(const Node& node);

}  // namespace tessera::rewrite
