#include <cmath>
#include <limits>

#include "tessera/ops/attention.h"
#include "tessera/ops/library/infer.h"

/// Pieces of attention as nodes of ordinary operators.
namespace tessera::ops {

Value* with_heads_apart(NodeBuilder& b, Value* value, const Expr& heads) {
  if (value->rank() == 4) return value;
  const Shape from = value->shape();
  return b.transpose(b.reshape(value, {from[0], from[1], heads, Expr::exact_divide(from[2], heads).value()}),
                     {0, 2, 1, 3});
}

Value* with_heads_together(NodeBuilder& b, Value* value, const Value* like) {
  return like->rank() == 4 ? value : b.reshape(b.transpose(value, {0, 2, 1, 3}), like->shape());
}

Value* seen_in_windows(NodeBuilder& b, const Node& node, Value* keys, Value* queries) {
  const int64_t left = window_of(node, "left_window_size"), right = window_of(node, "right_window_size");
  Value* seen = nullptr;
  if (left >= 0) seen = b.emit("GreaterOrEqual", {keys, b.add(queries, static_cast<double>(-left))});
  if (right >= 0) seen = b.both(seen, b.emit("LessOrEqual", {keys, b.add(queries, static_cast<double>(right))}));
  return seen;
}

Value* seen_by_position(NodeBuilder& b, const Node& node, Value* keys, Value* queries) {
  Value* seen = seen_in_windows(b, node, keys, queries);
  return node.get_int("is_causal", 0) == 0 ? seen : b.both(seen, b.emit("LessOrEqual", {keys, queries}));
}

Value* mask_over_keys(NodeBuilder& b, Value* mask, const Expr& keys) {
  const Expr& known = mask->shape().back();
  if (known == keys) return mask;
  Value* pads = b.shape_operand({0, keys - known});
  Value* hidden = b.number(mask, mask->dtype() == DType::boolean ? 0 : -std::numeric_limits<double>::infinity());
  return b.emit("Pad", {mask, pads, hidden, b.graph.constant_int64({-1})});
}

Value* mask_where_seen(NodeBuilder& b, Value* mask, Value* seen, const Expr& keys) {
  if (!mask) return seen;
  mask = mask_over_keys(b, mask, keys);
  if (!seen || mask->dtype() == DType::boolean) return b.both(mask, seen);
  return b.where(seen, mask, -std::numeric_limits<double>::infinity());
}

double attention_scale(const Node& node, const Expr& width) {
  if (node.find_attribute("scale")) return node.get_float("scale", 0);
  const auto known = width.constant();
  if (!known)
    fail_node(node, "the width of its heads is not known, and it has no attribute 'scale'; state one of them");
  return 1 / std::sqrt(static_cast<double>(*known));
}

}  // namespace tessera::ops
