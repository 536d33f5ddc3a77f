#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <vector>

#include "tessera/ir/graph.h"

/// How the raise_* passes look at the nodes around a value.
namespace tessera::rewrite {

/// A product as its scalar constants, multiplied, and its other factors. x·x and Pow(x, 2) both give x twice; division
/// by a constant counts as multiplication.
struct Product {
  double coefficient = 1;
  std::vector<Value*> factors;
};

/// The factors of a value, through a dozen or so products that nothing else uses.
Product product_of(const Graph& graph, Value* value);

/// Strips multiplications and divisions by constants: value = scale · result.
Value* without_scale(Value* value, double& scale);

/// The operand beside a constant scalar `expected` on either side, of an operator with two; null if there is none.
Value* beside_scalar(const Node* node, double expected);

/// Whether only these nodes use the value, and it is not a graph output.
bool used_only_by(const Graph& graph, const Value* value, std::initializer_list<const Node*> nodes);

/// Whether values that are computed from `from` on the way to `to` have no other use, so that they vanish if `to` is
/// computed in another way. Values before `stops` do not count, nor do elements of `from` that are only moved.
bool used_only_between(const Graph& graph, const Value* from, const Value* to, const std::set<const Value*>& stops);

/// The node of the value's only use; null if there are more, or if it is a graph output.
Node* only_user(const Graph& graph, const Value* value);

/// A slice of one axis with step 1.
struct Range1D {
  size_t axis = 0;
  int64_t start = 0;
  int64_t end = 0;  ///< at most the axis's extent
};
std::optional<Range1D> slice_of(const Node& node);

}  // namespace tessera::rewrite
