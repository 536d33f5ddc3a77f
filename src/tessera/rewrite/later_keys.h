#pragma once

#include "tessera/rewrite/affine.h"

namespace tessera::rewrite {

/// Recognises a mask over [..., queries, keys] that hides what comes after a query, which stands at `past` + its index,
/// and nothing else: bool, or added to scores.
class LaterKeys {
 public:
  /// The analysis must outlive it.
  LaterKeys(const AffineAnalysis& analysis, Expr past) : analysis_(analysis), past_(std::move(past)) {}

  bool alone_hidden_by(const Value* mask) const;

 private:
  bool everywhere(const Value* condition) const;
  bool sees_earlier(const Value* condition) const;
  bool counts(const Value* value, size_t from_end, const Expr& offset) const;

  const AffineAnalysis& analysis_;
  Expr past_;
};

}  // namespace tessera::rewrite
