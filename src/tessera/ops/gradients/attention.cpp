#include "tessera/ops/attention.h"

#include <limits>

#include "tessera/ops/gradients/backward.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/infer.h"

/// Gradients of attention and of rotary embeddings.
namespace tessera::ops {
namespace {

// [batch, heads, …] as [batch, key heads, group, …].
Value* in_groups(NodeBuilder& b, Value* value, const Expr& key_heads, const Expr& group) {
  Shape shape = value->shape();
  const bool one = shape[1].is(1);
  shape[1] = one ? Expr(1) : key_heads;
  shape.insert(shape.begin() + 2, one ? Expr(1) : group);
  return b.reshape(value, shape);
}
Value* of_heads(NodeBuilder& b, Value* value, const Expr& heads) {
  Shape shape = value->shape();
  shape.erase(shape.begin() + 2);
  shape[1] = heads;
  return b.reshape(value, shape);
}

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// Whether AttentionGradient computes what is asked for.
bool has_operator(const GradientBuilder& b) {
  const DType dtype = b.x(kQuery)->dtype();
  const bool computed = dtype == DType::float32 || dtype == DType::bfloat16 || dtype == DType::float16;
  return computed && !b.wants(kMask) && !b.x(kSink);
}

AttentionGradients by_operator(GradientBuilder& b, const AttentionBackward& forward) {
  std::vector<Attribute> attributes;
  for (const char* name : {"scale", "softcap", "is_causal", "left_window_size", "right_window_size"})
    if (const Attribute* attribute = b.node.find_attribute(name)) attributes.push_back(*attribute);
  const auto results = b.emit_all(kGradientDomain, "AttentionGradient",
                                  {forward.q, forward.k, forward.v, forward.mask, forward.y, forward.g}, attributes, 3);
  return {results[0], results[1], results[2]};
}

}  // namespace

AttentionGradients attention_gradients(NodeBuilder& b, const Node& node, const AttentionBackward& forward) {
  const Expr heads = forward.q->shape()[1], key_heads = forward.k->shape()[1];
  const Expr queries = forward.q->shape()[2], keys = forward.k->shape()[2];
  const auto group = Expr::exact_divide(heads, key_heads);
  if (!group)
    fail("gradient", "{} has no gradient: the number of its query heads for each key head is not known", node.label());
  const bool shared = !group->is(1);
  const auto grouped = [&](Value* value) { return shared ? in_groups(b, value, key_heads, *group) : value; };
  const auto ungrouped = [&](Value* value) { return shared ? of_heads(b, value, heads) : value; };
  const auto single = [&](Value* value) { return shared ? in_groups(b, value, key_heads, 1) : value; };
  Value *q = grouped(forward.q), *k = single(forward.k), *v = single(forward.v);
  Value *y = grouped(forward.y), *g = grouped(forward.g);

  const double scale = attention_scale(node, q->shape().back());
  // Scores as the operator computes them: scaled, capped, masked, as probabilities.
  Value* scores = b.mul(b.emit("MatMul", {q, b.turn(k)}), scale);
  Value* capped = nullptr;
  const double cap = node.get_float("softcap", 0);
  if (cap > 0) {
    capped = b.unary("Tanh", b.mul(scores, 1 / cap));
    scores = b.mul(capped, cap);
  }
  Value* seen =
      seen_by_position(b, node, b.reshape(b.range(keys), {1, keys}), b.reshape(b.range(queries), {queries, 1}));
  if (forward.mask) {
    Value* mask = mask_over_keys(b, forward.mask, keys);
    Shape shape = mask->shape();
    while (shape.size() < 4) shape.insert(shape.begin(), 1);
    mask = grouped(b.reshape(mask, shape));
    Value* open = mask;
    if (mask->dtype() != DType::boolean) {
      open = b.greater(mask, kHidden);
      scores = b.add(scores, b.cast(mask, scores->dtype()));
    }
    seen = seen ? b.emit("And", {seen, open}) : open;
  }
  // A query that sees no key has NaNs first, and no probabilities at all then.
  if (seen) scores = b.where(seen, scores, kHidden);
  // A sink is one score more.
  Value *sunk = nullptr, *all = scores;
  if (forward.sink) {
    Shape column = scores->shape();
    column.back() = 1;
    sunk = b.expand(grouped(b.reshape(b.cast(forward.sink, scores->dtype()), {1, heads, 1, 1})), column);
    all = b.emit("Concat", {scores, sunk}, {{"axis", int64_t{-1}, ""}});
  }
  Value* probabilities = b.emit("Softmax", {all}, {{"axis", int64_t{-1}, ""}});
  if (sunk) {
    const auto axis = static_cast<int64_t>(scores->rank()) - 1;
    sunk = b.slice(probabilities, axis, keys, keys + 1);
    probabilities = b.slice(probabilities, axis, 0, keys);
  }
  if (seen) probabilities = b.where(seen, probabilities, 0.0);

  AttentionGradients gradients{};
  gradients.v = ungrouped(b.emit("MatMul", {b.turn(probabilities), g}));
  // The row sum of P·dP is that of O·dO, which has fewer elements.
  Value* row = b.sum(b.mul(g, y), {static_cast<int64_t>(g->rank()) - 1});
  Value* of_scores = b.mul(probabilities, b.sub(b.emit("MatMul", {g, b.turn(v)}), row));
  gradients.scores = ungrouped(of_scores);
  if (sunk) gradients.sink = b.neg(b.sum(ungrouped(b.mul(sunk, row)), {0, 2, 3}, false));
  if (capped) of_scores = b.mul(of_scores, b.sub(1, b.mul(capped, capped)));
  of_scores = b.mul(of_scores, scale);
  gradients.q = ungrouped(b.emit("MatMul", {of_scores, k}));
  gradients.k = ungrouped(b.emit("MatMul", {b.turn(of_scores), q}));
  return gradients;
}

void attention_gradient(GradientBuilder& b) {
  for (size_t r = 1; r < b.node.outputs.size(); ++r)
    if (b.g(r)) b.refuse("the loss depends on its present keys or values, or its scores; use only the first result");
  if (b.x(kPastKey) || b.x(kKeyLengths)) b.refuse("it reads a cache; export the model without one for training");
  if (b.wants(kMask) && b.x(kMask)->dtype() == DType::boolean) b.refuse("its mask is of bools");
  const bool packed = b.x(kQuery)->rank() == 3;
  const Expr heads = packed ? Expr(b.node.get_int("q_num_heads", 0)) : b.x(kQuery)->shape()[1];
  const Expr key_heads = packed ? Expr(b.node.get_int("kv_num_heads", 0)) : b.x(kKey)->shape()[1];
  // The operator has sums of float32; ordinary nodes have them if their operands are.
  const bool widens = b.x(kSink) && bits_of(b.x(kQuery)->dtype()) == 16;
  const auto apart = [&](Value* value, const Expr& count) {
    value = with_heads_apart(b, value, count);
    return widens ? b.cast(value, DType::float32) : value;
  };
  const AttentionBackward forward{apart(b.x(kQuery), heads),
                                  apart(b.x(kKey), key_heads),
                                  apart(b.x(kValue), key_heads),
                                  b.x(kMask),
                                  apart(b.y(), heads),
                                  apart(b.g(), heads),
                                  b.x(kSink)};
  const AttentionGradients gradients =
      has_operator(b) ? by_operator(b, forward) : attention_gradients(b, b.node, forward);
  // Over the query heads that share a key head.
  const auto summed = [&](Value* value, size_t operand) {
    if (heads != key_heads) {
      const auto group = Expr::exact_divide(heads, key_heads);
      if (!group) b.refuse("the number of its query heads for each key head is not known");
      value = b.sum(in_groups(b, value, key_heads, *group), {2}, false);
    }
    return b.cast(with_heads_together(b, value, b.x(operand)), b.x(operand)->dtype());
  };
  b.give(kQuery, b.cast(with_heads_together(b, gradients.q, b.x(kQuery)), b.x(kQuery)->dtype()));
  if (b.wants(kKey)) b.give(kKey, summed(gradients.k, kKey));
  if (b.wants(kValue)) b.give(kValue, summed(gradients.v, kValue));
  if (b.wants(kSink)) b.give(kSink, b.cast(gradients.sink, b.x(kSink)->dtype()));
  if (b.wants(kMask))
    b.give(kMask, b.cast(b.slice(gradients.scores, 3, 0, b.x(kMask)->shape().back()), b.x(kMask)->dtype()));
}

void rotary_gradient(GradientBuilder& b) {
  // A rotation's transpose turns the other way.
  std::vector<Value*> operands = {b.g(), b.x(1), b.neg(b.x(2))};
  if (b.x(3)) operands.push_back(b.x(3));
  b.give(0, b.emit("RotaryEmbedding", operands, b.node.attributes));
}

}  // namespace tessera::ops
