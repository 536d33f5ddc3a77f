#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ops/rule.h"

/// Building blocks for the rules of many operators: one factor per dimension, and how operands map to them.
namespace tessera::ops {

/// Adds one factor per extent, named by the letters in order ("abc" gives a, b, c; past the last letter c3, c4, …), and
/// returns the dimensions made of these factors.
std::vector<DimFactors> add_dims(Rule& rule, const Shape& shape, std::string_view letters,
                                 FactorKind kind = FactorKind::pass);

/// The dimensions of an operand that broadcasts to `full` (of dimensions `dims`), aligned at the right: the full
/// tensor's factors, or none if the operand's extent is 1 and the full one's is not.
std::vector<DimFactors> broadcast_dims(const Shape& operand, const Shape& full, const std::vector<DimFactors>& dims);

/// `rank` dimensions along which no factor runs.
std::vector<DimFactors> no_dims(size_t rank);

/// A rule whose operands and results, those that the node has, have their ranks but no factors yet.
Rule blank_rule(const Node& node);

/// One factor for each dimension of the first operand; those of `dims` are of that kind, the others pass into every
/// result of the same rank. A result's dimension of another extent than the operand's has no factor. Other operands
/// are whole. Prints "a b c -> a b c | c: norm".
Rule rule_along(const Node& node, const std::vector<int>& dims, FactorKind kind);

/// Whether the elements at each index of that dimension fill whole bytes, so that the value can be cut or copied along
/// it: elements of 4 and 2 bits may share one. Dimension -1: all elements.
bool fills_bytes(const Value& value, int64_t dim);

/// The product of all extents of an operand or result.
Expr elements_of(const Value& value);

}  // namespace tessera::ops
