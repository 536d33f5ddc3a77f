#include <optional>

#include "tessera/ops/attention.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/require.h"

namespace tessera::ops {
namespace {

/// How many keys a query sees at most where windows bound them on either side.
std::optional<int64_t> keys_in_windows(const Node& node) {
  const int64_t before = window_of(node, "left_window_size");
  const int64_t after = node.get_int("is_causal", 0) != 0 ? 0 : window_of(node, "right_window_size");
  return before < 0 || after < 0 ? std::nullopt : std::optional(before + 1 + after);
}

}  // namespace

Expr per_head(const Node& node, const Expr& hidden, const Expr& heads, std::string_view what) {
  auto width = Expr::exact_divide(hidden, heads);
  if (!width)
    fail_node(node, "the {} elements of the {} do not divide into {} heads; check q_num_heads and kv_num_heads",
              hidden.str(), what, heads.str());
  return *width;
}

Expr heads_per_key(const Node& node, const AttentionDims& dims) {
  if (dims.heads.is(0)) return 0;
  auto each = Expr::exact_divide(dims.heads, dims.kv_heads);
  if (!each)
    fail_node(node, "{} query heads cannot share {} key and value heads evenly", dims.heads.str(), dims.kv_heads.str());
  return *each;
}

AttentionDims attention_dims(const Node& node) {
  const Shape &q = shape_of(node, kQuery), &k = shape_of(node, kKey), &v = shape_of(node, kValue);
  if ((q.size() != 3 && q.size() != 4) || k.size() != q.size() || v.size() != q.size())
    fail_node(node,
              "query {}, key {} and value {} must all be [batch, heads, sequence, width] or [batch, sequence, hidden]",
              to_string(q), to_string(k), to_string(v));
  AttentionDims dims;
  dims.packed = q.size() == 3;
  size_t sequence = dims.packed ? 1 : 2;
  dims.batch = require_equal(node, require_equal(node, q[0], k[0], "the query's batch", "the key's"), v[0],
                             "the query's batch", "the value's");
  dims.queries = q[sequence];
  dims.keys = require_equal(node, k[sequence], v[sequence], "the key's sequence", "the value's");
  Expr key_width;
  if (dims.packed) {
    dims.heads = node.get_int("q_num_heads", 0);
    dims.kv_heads = node.get_int("kv_num_heads", 0);
    if (dims.heads.is(0) || dims.kv_heads.is(0))
      fail_node(node, "operands of rank 3 need the attributes q_num_heads and kv_num_heads");
    dims.width = per_head(node, q[2], dims.heads, "query");
    key_width = per_head(node, k[2], dims.kv_heads, "key");
    dims.value_width = per_head(node, v[2], dims.kv_heads, "value");
  } else {
    dims.heads = q[1];
    dims.kv_heads = require_equal(node, k[1], v[1], "the key's heads", "the value's");
    dims.width = q[3];
    key_width = k[3];
    dims.value_width = v[3];
  }
  dims.width = require_equal(node, dims.width, key_width, "the query's width per head", "the key's");
  if (has_operand(node, kPastKey) != has_operand(node, kPastValue))
    fail_node(node, "past_key and past_value must be given together");
  if (has_operand(node, kPastKey)) {
    const Shape& past = require_rank(node, kPastKey, "past_key", 4);
    require_rank(node, kPastValue, "past_value", 4);
    require_equal(node, past[1], dims.kv_heads, "the heads of past_key", "the key's heads");
    dims.past = past[2];
  }
  return dims;
}

void require_mask(const Node& node, const AttentionDims& dims) {
  if (!has_operand(node, kMask)) return;
  const Shape& mask = shape_of(node, kMask);
  if (mask.empty()) fail_node(node, "its mask is a scalar; it needs a dimension of keys");
  Shape allowed = dims.scores();
  allowed.back() = mask.back();
  require_broadcast_to(node, kMask, "the mask", allowed);
}

bool mask_has_all_keys(const Node& node, const AttentionDims& dims) {
  if (!has_operand(node, kMask)) return true;
  const Shape& mask = shape_of(node, kMask);
  return !mask.empty() && mask.back() == dims.total();
}

void require_sinks(const Node& node, const AttentionDims& dims) {
  if (!has_operand(node, kSink)) return;
  require_equal(node, require_rank(node, kSink, "the sinks", 1)[0], dims.heads, "the number of sinks", "that of heads");
  if (node.output(kScores))
    fail_node(node, "with sinks, its scores and the sums of its rows cannot be results; leave these out");
}

void set_attention_results(Node& node, const AttentionDims& dims, DType output) {
  Shape shape{dims.batch, dims.heads, dims.queries, dims.value_width};
  if (dims.packed) shape = {dims.batch, dims.queries, dims.heads * dims.value_width};
  set_result(node, kOutput, output, std::move(shape));
  set_result(node, kPresentKey, operand(node, kKey).dtype(), {dims.batch, dims.kv_heads, dims.total(), dims.width});
  set_result(node, kPresentValue, operand(node, kValue).dtype(),
             {dims.batch, dims.kv_heads, dims.total(), dims.value_width});
}

bool has_windows(const Node& node) {
  return window_of(node, "left_window_size") >= 0 || window_of(node, "right_window_size") >= 0;
}

bool is_positional(const Node& node) {
  return node.get_int("is_causal", 0) != 0 || has_windows(node);
}

bool sees_neighbours(const Node& node) {
  const AttentionDims dims = attention_dims(node);
  for (size_t r = 1; r < node.outputs.size(); ++r)
    if (node.output(r)) return false;
  return keys_in_windows(node) && dims.queries == dims.keys && !has_operand(node, kPastKey) &&
         !has_operand(node, kKeyLengths) && mask_has_all_keys(node, dims);
}

Expr attention_flops(const Node& node) {
  const AttentionDims dims = attention_dims(node);
  const auto bound = keys_in_windows(node);
  const Expr keys = bound ? min(dims.total(), Expr(*bound)) : dims.total();
  return 2 * dims.batch * dims.heads * dims.queries * keys * (dims.width + dims.value_width);
}

}  // namespace tessera::ops
