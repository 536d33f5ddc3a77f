#include <cmath>
#include <limits>

#include "tessera/ops/attention.h"
#include "tessera/ops/infer.h"

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

Value* seen_by_position(NodeBuilder& b, const Node& node, Value* ahead) {
  const int64_t left = window_of(node, "left_window_size"), right = window_of(node, "right_window_size");
  const auto at_most = [&](int64_t most) {
    return b.emit("LessOrEqual", {ahead, b.graph.constant_int64({most}, true)});
  };
  Value* seen = nullptr;
  const auto both = [&](Value* also) { seen = seen ? b.emit("And", {seen, also}) : also; };
  if (node.get_int("is_causal", 0) != 0) both(at_most(0));
  if (right >= 0) both(at_most(right));
  if (left >= 0) both(b.emit("GreaterOrEqual", {ahead, b.graph.constant_int64({-left}, true)}));
  return seen;
}

Value* mask_over_keys(NodeBuilder& b, Value* mask, const Expr& keys) {
  const Expr& known = mask->shape().back();
  if (known == keys) return mask;
  Value* pads = b.shape_operand({0, keys - known});
  Value* hidden = b.number(mask, mask->dtype() == DType::boolean ? 0 : -std::numeric_limits<double>::infinity());
  return b.emit("Pad", {mask, pads, hidden, b.graph.constant_int64({-1})});
}

double attention_scale(const Node& node, const Expr& width) {
  if (node.find_attribute("scale")) return node.get_float("scale", 0);
  const auto known = width.constant();
  if (!known)
    fail_node(node, "the width of its heads is not known, and it has no attribute 'scale'; state one of them");
  return 1 / std::sqrt(static_cast<double>(*known));
}

}  // namespace tessera::ops
