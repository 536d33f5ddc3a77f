#include <cmath>
#include <limits>

#include "tessera/ops/gradients.h"
#include "tessera/ops/infer.h"

/// Gradients of attention and of rotary embeddings.
namespace tessera::ops {
namespace {

enum Operand : size_t { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kLengths };

// Attention's operands as [batch, key heads, queries of one key head, position, width], and their way back.
class Heads {
 public:
  explicit Heads(GradientBuilder& b) : b_(b), packed_(b.x(kQuery)->rank() == 3) {
    if (packed_) {
      heads_ = b.node.get_int("q_num_heads", 0);
      key_heads_ = b.node.get_int("kv_num_heads", 0);
    } else {
      heads_ = b.x(kQuery)->shape()[1];
      key_heads_ = b.x(kKey)->shape()[1];
    }
    const auto group = Expr::exact_divide(heads_, key_heads_);
    if (!group) b.refuse("the number of its query heads for each key head is not known");
    group_ = *group;
  }

  Value* apart(Value* value, bool of_queries) {
    const Expr& heads = of_queries ? heads_ : key_heads_;
    if (packed_) {
      const Shape& from = value->shape();
      value = b_.reshape(value, {from[0], from[1], heads, Expr::exact_divide(from[2], heads).value()});
      value = b_.transpose(value, {0, 2, 1, 3});
    }
    const Shape& four = value->shape();
    if (group_.is(1)) return value;
    return b_.reshape(value, {four[0], key_heads_, of_queries ? group_ : Expr(1), four[2], four[3]});
  }

  // A gradient, summed over the query heads that share a key, in the operand's own form.
  Value* together(Value* value, const Value* operand, bool of_queries) {
    if (!group_.is(1)) {
      if (!of_queries) value = b_.sum(value, {2});
      const Shape& five = value->shape();
      value = b_.reshape(value, {five[0], of_queries ? heads_ : key_heads_, five[3], five[4]});
    }
    return packed_ ? b_.reshape(b_.transpose(value, {0, 2, 1, 3}), operand->shape()) : value;
  }

  // A mask that broadcasts to [batch, heads, queries, keys], beside scores.
  Value* mask(Value* value) {
    Shape shape = value->shape();
    while (shape.size() < 4) shape.insert(shape.begin(), 1);
    if (!group_.is(1)) {
      const bool one = shape[1].is(1);
      shape = {shape[0], one ? Expr(1) : key_heads_, one ? Expr(1) : group_, shape[2], shape[3]};
    }
    return b_.reshape(value, shape);
  }

  // The gradient of scores as one of scores of rank 4.
  Value* scores_together(Value* value) {
    if (group_.is(1)) return value;
    const Shape& five = value->shape();
    return b_.reshape(value, {five[0], heads_, five[3], five[4]});
  }

 private:
  GradientBuilder& b_;
  bool packed_;
  Expr heads_, key_heads_, group_;
};

// 0, 1, … count - 1
Value* range(GradientBuilder& b, const Expr& count) {
  return b.emit("Range",
                {b.graph.constant_int64({0}, true), b.scalar(DType::int64, count), b.graph.constant_int64({1}, true)});
}

// [queries, keys]: which keys a query's position lets it see; null: all.
Value* seen_by_position(GradientBuilder& b, const Expr& queries, const Expr& keys) {
  const bool causal = b.node.get_int("is_causal", 0) != 0;
  const int64_t left = b.node.get_int("left_window_size", -1), right = b.node.get_int("right_window_size", -1);
  if (!causal && left < 0 && right < 0) return nullptr;
  Value* ahead = b.sub(b.reshape(range(b, keys), {1, keys}), b.reshape(range(b, queries), {queries, 1}));
  const auto at_most = [&](int64_t most) {
    return b.emit("LessOrEqual", {ahead, b.graph.constant_int64({most}, true)});
  };
  Value* seen = nullptr;
  const auto both = [&](Value* also) { seen = seen ? b.emit("And", {seen, also}) : also; };
  if (causal) both(at_most(0));
  if (right >= 0) both(at_most(right));
  if (left >= 0) both(b.emit("GreaterOrEqual", {ahead, b.graph.constant_int64({-left}, true)}));
  return seen;
}

}  // namespace

void attention_gradient(GradientBuilder& b) {
  for (size_t r = 1; r < b.node.outputs.size(); ++r)
    if (b.g(r)) b.refuse("the loss depends on its present keys or values, or its scores; use only the first result");
  if (b.x(kPastKey) || b.x(kLengths)) b.refuse("it reads a cache; export the model without one for training");
  Heads heads(b);
  Value *q = heads.apart(b.x(kQuery), true), *k = heads.apart(b.x(kKey), false), *v = heads.apart(b.x(kValue), false);
  Value *g = heads.apart(b.g(), true), *y = heads.apart(b.y(), true);
  const Expr queries = q->shape()[q->rank() - 2], keys = k->shape()[k->rank() - 2];

  const auto width = q->shape().back().constant();
  double scale = b.node.get_float("scale", 0);
  if (!b.node.find_attribute("scale")) {
    if (!width) b.refuse("the width of its heads is not known, and it has no attribute 'scale'");
    scale = 1 / std::sqrt(static_cast<double>(*width));
  }
  // Scores as the operator computes them: scaled, capped, masked, as probabilities.
  Value* scores = b.mul(b.emit("MatMul", {q, b.turn(k)}), scale);
  Value* capped = nullptr;
  const double cap = b.node.get_float("softcap", 0);
  if (cap > 0) {
    capped = b.unary("Tanh", b.mul(scores, 1 / cap));
    scores = b.mul(capped, cap);
  }
  Value* seen = seen_by_position(b, queries, keys);
  if (b.x(kMask)) {
    Value* mask = heads.mask(b.x(kMask));
    Value* open = mask;
    if (mask->dtype() != DType::boolean) {
      open = b.greater(mask, -std::numeric_limits<double>::infinity());
      scores = b.add(scores, mask);
    }
    // Keys behind the mask's last are not seen.
    if (mask->shape().back() != keys) {
      const Expr known = mask->shape().back();
      open = b.emit("And", {open, b.emit("Less", {range(b, keys), b.scalar(DType::int64, known)})});
    }
    seen = seen ? b.emit("And", {seen, open}) : open;
  }
  // A query that sees no key has NaNs first, and no probabilities at all then.
  if (seen) scores = b.where(seen, scores, -std::numeric_limits<double>::infinity());
  Value* probabilities = b.emit("Softmax", {scores}, {{"axis", int64_t{-1}, ""}});
  if (seen) probabilities = b.where(seen, probabilities, 0.0);

  if (b.wants(kValue)) b.give(kValue, heads.together(b.emit("MatMul", {b.turn(probabilities), g}), b.x(kValue), false));
  if (!b.wants(kQuery) && !b.wants(kKey) && !b.wants(kMask)) return;
  // The row sum of P·dP is that of O·dO, which has fewer elements.
  Value* row = b.sum(b.mul(g, y), {static_cast<int64_t>(g->rank()) - 1});
  Value* of_scores = b.mul(probabilities, b.sub(b.emit("MatMul", {g, b.turn(v)}), row));
  if (b.wants(kMask)) {
    if (b.x(kMask)->dtype() == DType::boolean) b.refuse("its mask is of bools");
    b.give(kMask, heads.scores_together(of_scores));
  }
  if (capped) of_scores = b.mul(of_scores, b.sub(1, b.mul(capped, capped)));
  of_scores = b.mul(of_scores, scale);
  if (b.wants(kQuery)) b.give(kQuery, heads.together(b.emit("MatMul", {of_scores, k}), b.x(kQuery), true));
  if (b.wants(kKey)) b.give(kKey, heads.together(b.emit("MatMul", {b.turn(of_scores), q}), b.x(kKey), false));
}

void rotary_gradient(GradientBuilder& b) {
  // A rotation's transpose turns the other way.
  std::vector<Value*> operands = {b.g(), b.x(1), b.neg(b.x(2))};
  if (b.x(3)) operands.push_back(b.x(3));
  b.give(0, b.emit("RotaryEmbedding", operands, b.node.attributes));
}

}  // namespace tessera::ops
