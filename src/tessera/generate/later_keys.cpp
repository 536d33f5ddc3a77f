#include "tessera/generate/later_keys.h"

#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/raise/causal.h"

// j <= past + i over keys j and queries i, in either order, and joined by And with what is true everywhere:
//   LessOrEqual(range [1, keys], past + range [queries, 1])
// and a window, j > past + i - w:
//   Greater(range [1, keys], past - w + range [queries, 1])
namespace tessera::generate {

bool LaterKeys::alone_hidden_by(const Value* mask) const {
  if (mask->dtype() == DType::boolean) return sees_earlier(mask);
  const Node* where = rewrite::made_by(mask, "Where");
  return where && rewrite::is_scalar(where->inputs[1], 0) && rewrite::is_minus_infinity(where->inputs[2]) &&
         sees_earlier(where->inputs[0]);
}

bool LaterKeys::hides_before(const Value* mask, int64_t kept) const {
  if (mask->dtype() == DType::boolean) return is_near(mask, kept);
  const Node* where = rewrite::made_by(mask, "Where");
  return where && rewrite::scalar_of(where->inputs[1]) && rewrite::is_minus_infinity(where->inputs[2]) &&
         is_near(where->inputs[0], kept);
}

// Whether the condition, j > q - w among others, is true of none but near keys, and the same if keys and queries are
// both counted from an earlier token on.
bool LaterKeys::is_near(const Value* condition, int64_t kept) const {
  if (const Node* both = rewrite::made_by(condition, "And")) {
    const Value *a = both->inputs[0], *b = both->inputs[1];
    return (is_near(a, kept) && is_relative(b)) || (is_near(b, kept) && is_relative(a));
  }
  if (const Node* node = rewrite::made_by(condition, "Greater"))
    return follows(node->inputs[0], node->inputs[1], kept + 1);
  if (const Node* node = rewrite::made_by(condition, "GreaterOrEqual"))
    return follows(node->inputs[0], node->inputs[1], kept);
  if (const Node* node = rewrite::made_by(condition, "Less"))
    return follows(node->inputs[1], node->inputs[0], kept + 1);
  if (const Node* node = rewrite::made_by(condition, "LessOrEqual"))
    return follows(node->inputs[1], node->inputs[0], kept);
  return false;
}

// Whether the condition is about how far a key is from a query alone.
bool LaterKeys::is_relative(const Value* condition) const {
  const rewrite::Affine* whole = analysis_.of(condition);
  if (whole && whole->uniform()) return true;
  const Node* node = condition->producer;
  if (!node) return false;
  if (node->is("Not")) return is_relative(node->inputs[0]);
  if (node->is("And") || node->is("Or")) return is_relative(node->inputs[0]) && is_relative(node->inputs[1]);
  for (const char* type : {"Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
    if (node->is(type))
      return is_distance(node->inputs[0], node->inputs[1]) || is_distance(node->inputs[1], node->inputs[0]);
  return false;
}

// Whether these are the places of queries, plus or minus a number, and those of keys.
bool LaterKeys::is_distance(const Value* queries, const Value* keys) const {
  const rewrite::Affine *of_queries = analysis_.of(queries), *of_keys = analysis_.of(keys);
  return of_queries && of_keys && (of_queries->offset - of_keys->offset - past_).constant() &&
         counts(queries, 2, of_queries->offset) && counts(keys, 1, of_keys->offset);
}

// Whether `keys` are the places of keys, and `queries` those of queries less at most `most`.
bool LaterKeys::follows(const Value* keys, const Value* queries, int64_t most) const {
  const rewrite::Affine* affine = analysis_.of(queries);
  const auto behind = affine ? (past_ - affine->offset).constant() : std::nullopt;
  return behind && *behind <= most && counts(keys, 1, 0) && counts(queries, 2, affine->offset);
}

bool LaterKeys::everywhere(const Value* condition) const {
  const rewrite::Affine* affine = analysis_.of(condition);
  return affine && affine->uniform() == 1;
}

bool LaterKeys::sees_earlier(const Value* condition) const {
  if (const Node* both = rewrite::made_by(condition, "And")) {
    const Value *a = both->inputs[0], *b = both->inputs[1];
    return (sees_earlier(a) && (everywhere(b) || sees_earlier(b))) || (everywhere(a) && sees_earlier(b));
  }
  if (const Node* less = rewrite::made_by(condition, "LessOrEqual"))
    return counts(less->inputs[0], 1, 0) && counts(less->inputs[1], 2, past_);
  if (const Node* greater = rewrite::made_by(condition, "GreaterOrEqual"))
    return counts(greater->inputs[1], 1, 0) && counts(greater->inputs[0], 2, past_);
  return false;
}

// Whether each element is `offset` plus its index along the dimension that is so far from the end.
bool LaterKeys::counts(const Value* value, size_t from_end, const Expr& offset) const {
  const rewrite::Affine* affine = analysis_.of(value);
  if (!affine || affine->offset != offset || affine->strides.size() < from_end) return false;
  for (size_t d = 0; d < affine->strides.size(); ++d)
    if (!affine->strides[d].is(d + from_end == affine->strides.size() ? 1 : 0)) return false;
  return true;
}

}  // namespace tessera::generate
