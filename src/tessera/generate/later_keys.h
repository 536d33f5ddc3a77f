#pragma once

#include "tessera/rewrite/raise/affine.h"

namespace tessera::generate {

/// Recognises masks over [..., queries, keys] that hide what comes after a query, which stands at `past` + its index,
/// and nothing else, or that hide what comes long before it: bool, or added to scores.
class LaterKeys {
 public:
  /// The analysis must outlive it.
  LaterKeys(const rewrite::AffineAnalysis& analysis, Expr past) : analysis_(analysis), past_(std::move(past)) {}

  bool alone_hidden_by(const Value* mask) const;
  /// Whether a mask hides from every query at q all keys j < q - `kept`, and which others it hides depends on nothing
  /// but their distance from q.
  bool hides_before(const Value* mask, int64_t kept) const;

 private:
  bool is_near(const Value* condition, int64_t kept) const;
  bool is_relative(const Value* condition) const;
  bool is_distance(const Value* queries, const Value* keys) const;
  bool follows(const Value* keys, const Value* queries, int64_t most) const;
  bool everywhere(const Value* condition) const;
  bool sees_earlier(const Value* condition) const;
  bool counts(const Value* value, size_t from_end, const Expr& offset) const;

  const rewrite::AffineAnalysis& analysis_;
  Expr past_;
};

}  // namespace tessera::generate
