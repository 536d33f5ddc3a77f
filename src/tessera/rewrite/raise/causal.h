#pragma once

#include <optional>

#include "tessera/ir/graph.h"
#include "tessera/rewrite/raise/affine.h"

/// Recognises masks that let a query see the keys up to its own position, or those around it, however they are written.
namespace tessera::rewrite {

/// The keys that each query sees: from `left` before its own position to `right` after it. Nullopt: unbounded.
struct SeenKeys {
  std::optional<int64_t> left, right;

  bool is_causal() const { return !left && right == 0; }
};

/// The keys that a mask of scores [..., queries, keys] shows: where a predicate holds (does not, if `negated`), or
/// where an added mask is 0 and not minus infinity. Nullopt if they are not the same around every query, or a query
/// does not see its own position.
std::optional<SeenKeys> seen_keys(const AffineAnalysis& analysis, const Value* mask, const Shape& scores,
                                  bool negated = false);

/// Whether a bool predicate over [..., queries, keys] is key ≤ query, or its negation if `negated`. `scores` is the
/// shape of the masked tensor.
bool is_causal(const AffineAnalysis& analysis, const Value* predicate, const Shape& scores, bool negated);

/// Whether the value is a constant so low that any score to which it is added becomes zero in the softmax.
bool is_minus_infinity(const Value* value);

}  // namespace tessera::rewrite
