#pragma once

#include "tessera/ir/graph.h"
#include "tessera/rewrite/affine.h"

/// Recognises the mask that lets a query see the keys up to its own position, in any spelling.
namespace tessera::rewrite {

/// Whether a bool predicate over [..., queries, keys] is key ≤ query, or its negation if `negated`. `scores` is the
/// shape of the masked tensor.
bool is_causal(const AffineAnalysis& analysis, const Value* predicate, const Shape& scores, bool negated);

/// Whether an added mask is 0 for key ≤ query and minus infinity beyond.
bool is_causal_penalty(const AffineAnalysis& analysis, const Value* mask, const Shape& scores);

/// Whether the value is a constant so low that any score plus it is zero after the softmax.
bool is_minus_infinity(const Value* value);

}  // namespace tessera::rewrite
