#include <algorithm>

#include "tessera/ops/backward.h"
#include "tessera/ops/dims.h"
#include "tessera/ops/gradients.h"
#include "tessera/ops/infer.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/require.h"

namespace tessera::ops {
namespace {

enum AttentionOperand : size_t { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kLengths };

// An Attention's extents: queries [batch, heads, queries, width], keys [batch, kv_heads, keys, width], values
// [batch, kv_heads, keys, value_width]; in the 3-D form [batch, queries, heads·width], and so on.
struct AttentionDims {
  Expr batch, heads, kv_heads, queries, keys, past, width, value_width;
  bool packed = false;  ///< the 3-D form

  Expr total() const { return past + keys; }
};

Expr per_head(const Node& node, const Expr& hidden, const Expr& heads, std::string_view what) {
  auto width = Expr::exact_divide(hidden, heads);
  if (!width)
    fail_node(node, "the {} elements of the {} do not divide into {} heads; check q_num_heads and kv_num_heads",
              hidden.str(), what, heads.str());
  return *width;
}

// How many query heads share each key and value head.
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
  // Where ranks have different shares, the expressions may not show it; kernels check the numbers.
  if (dims.heads.is_constant() && dims.kv_heads.is_constant()) (void)heads_per_key(node, dims);
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

Shape score_shape(const AttentionDims& dims) {
  return {dims.batch, dims.heads, dims.queries, dims.total()};
}

void infer_attention(Node& node) {
  AttentionDims dims = attention_dims(node);
  DType dtype = require_same_dtype(node, {kQuery, kKey});
  if (has_operand(node, kMask)) {
    // The mask may cover fewer keys than there are; the rest is masked out.
    Shape allowed = score_shape(dims);
    const Shape& mask = shape_of(node, kMask);
    if (!mask.empty()) allowed.back() = mask.back();
    require_broadcast_to(node, kMask, "the mask", allowed);
  }
  Shape shape{dims.batch, dims.heads, dims.queries, dims.value_width};
  if (dims.packed) shape = {dims.batch, dims.queries, dims.heads * dims.value_width};
  set_result(node, 0, dtype, std::move(shape));
  set_result(node, 1, dtype, {dims.batch, dims.kv_heads, dims.total(), dims.width});
  set_result(node, 2, operand(node, kValue).dtype(), {dims.batch, dims.kv_heads, dims.total(), dims.value_width});
  set_result(node, 3, dtype, score_shape(dims));
}

// Which keys a query sees depends on its position in the whole sequence.
bool is_positional(const Node& node) {
  return node.get_int("is_causal", 0) != 0 || node.get_int("left_window_size", -1) >= 0 ||
         node.get_int("right_window_size", -1) >= 0;
}

// The 3-D form: heads lie inside the hidden dimensions and their counts in attributes, so that those are whole. Raising
// to the 4-D form is what splits them.
Rule packed_attention_rule(const Node& node, const AttentionDims& dims) {
  Rule rule = blank_rule(node);
  DimFactors b{rule.add("b", dims.batch)};
  DimFactors s{rule.add("s", dims.queries, is_positional(node) ? FactorKind::whole : FactorKind::pass)};
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] && i != kMask) rule.operands[i][0] = b;
  for (size_t r = 0; r < node.outputs.size(); ++r)
    if (node.outputs[r]) rule.results[r][0] = b;
  rule.operands[kQuery][1] = rule.results[0][1] = s;
  if (has_operand(node, kMask))
    rule.operands[kMask] = broadcast_dims(node.input(kMask)->shape(), score_shape(dims), {b, {}, s, {}});
  if (node.output(3)) rule.results[3][2] = s;
  return rule;
}

// "b (kv g) s d, b kv t d, b kv t w -> b (kv g) s w | d: whole, t: whole": kv counts the key and value heads, g the
// query heads that share one.
Rule attention_rule(const Node& node) {
  AttentionDims dims = attention_dims(node);
  if (dims.packed) return packed_attention_rule(node, dims);
  Rule rule = blank_rule(node);
  DimFactors b{rule.add("b", dims.batch)}, kv{rule.add("kv", dims.kv_heads)}, heads = kv;
  if (dims.heads != dims.kv_heads) heads.push_back(rule.add("g", heads_per_key(node, dims)));
  DimFactors s{rule.add("s", dims.queries, is_positional(node) ? FactorKind::whole : FactorKind::pass)};
  DimFactors d{rule.add("d", dims.width, FactorKind::whole)}, t{rule.add("t", dims.keys, FactorKind::whole)};
  DimFactors w{rule.add("w", dims.value_width)};
  rule.operands[kQuery] = {b, heads, s, d};
  rule.operands[kKey] = {b, kv, t, d};
  rule.operands[kValue] = {b, kv, t, w};
  rule.results[0] = {b, heads, s, w};
  if (has_operand(node, kMask))
    rule.operands[kMask] = broadcast_dims(node.input(kMask)->shape(), score_shape(dims), {b, heads, s, {}});
  if (has_operand(node, kPastKey)) {
    rule.operands[kPastKey] = {b, kv, {}, d};
    rule.operands[kPastValue] = {b, kv, {}, w};
  }
  if (has_operand(node, kLengths)) rule.operands[kLengths] = {b};
  if (node.output(1)) rule.results[1] = {b, kv, {}, d};
  if (node.output(2)) rule.results[2] = {b, kv, {}, w};
  if (node.output(3)) rule.results[3] = {b, heads, s, {}};
  return rule;
}

Expr attention_flops(const Node& node) {
  AttentionDims dims = attention_dims(node);
  return 2 * dims.batch * dims.heads * dims.queries * dims.total() * (dims.width + dims.value_width);
}

// --- AttentionGradient

enum GradientOperand : size_t { kResult = 4, kOfResult = 5 };

Shape per_query_head(const AttentionDims& dims, const Expr& width) {
  return {dims.batch, dims.heads, dims.total(), width};
}

// The Attention whose gradient this is.
AttentionDims dims_of_gradient(const Node& node) {
  for (size_t i : {size_t{kQuery}, size_t{kKey}, size_t{kValue}})
    if (shape_of(node, i).size() != 4)
      fail_node(node, "operand {} has rank {}; it must have 4", i, shape_of(node, i).size());
  Node forward = node;
  forward.inputs.resize(kResult);
  return attention_dims(forward);
}

void infer_attention_gradient(Node& node) {
  const AttentionDims dims = dims_of_gradient(node);
  const DType dtype = require_same_dtype(node, {kQuery, kKey, kValue, kResult, kOfResult});
  if (has_operand(node, kMask)) {
    Shape allowed = score_shape(dims);
    const Shape& mask = shape_of(node, kMask);
    if (!mask.empty()) allowed.back() = mask.back();
    require_broadcast_to(node, kMask, "the mask", allowed);
  }
  const Shape result{dims.batch, dims.heads, dims.queries, dims.value_width};
  for (const auto& [operand, what] :
       {std::pair(kResult, "the result"), std::pair(kOfResult, "the result's gradient")}) {
    const Shape& given = require_rank(node, operand, what, 4);
    for (size_t d = 0; d < 4; ++d)
      require_equal(node, given[d], result[d], fmt::format("dimension {} of {}", d, what),
                    "that of Attention's result");
  }
  set_result(node, 0, dtype, shape_of(node, kQuery));
  set_result(node, 1, dtype, per_query_head(dims, dims.width));
  set_result(node, 2, dtype, per_query_head(dims, dims.value_width));
}

// "b (kv g) s d, b kv t d, b kv t w, _, b (kv g) s w, b (kv g) s w -> b (kv g) s d, b (kv g) t d, b (kv g) t w":
// batches and heads pass.
Rule attention_gradient_rule(const Node& node) {
  const AttentionDims dims = dims_of_gradient(node);
  Rule rule = blank_rule(node);
  DimFactors b{rule.add("b", dims.batch)}, kv{rule.add("kv", dims.kv_heads)}, heads = kv;
  if (dims.heads != dims.kv_heads) heads.push_back(rule.add("g", heads_per_key(node, dims)));
  const auto whole = [&](std::string name, const Expr& size) {
    return DimFactors{rule.add(std::move(name), size, FactorKind::whole)};
  };
  const DimFactors s = whole("s", dims.queries), d = whole("d", dims.width), t = whole("t", dims.keys),
                   w = whole("w", dims.value_width);
  rule.operands[kQuery] = {b, heads, s, d};
  rule.operands[kKey] = {b, kv, t, d};
  rule.operands[kValue] = {b, kv, t, w};
  if (has_operand(node, kMask))
    rule.operands[kMask] = broadcast_dims(node.input(kMask)->shape(), score_shape(dims), {b, heads, s, {}});
  rule.operands[kResult] = rule.operands[kOfResult] = {b, heads, s, w};
  const std::vector<std::vector<DimFactors>> results = {{b, heads, s, d}, {b, heads, t, d}, {b, heads, t, w}};
  for (size_t r = 0; r < results.size(); ++r)
    if (node.output(r)) rule.results[r] = results[r];
  return rule;
}

// Five products with the scores' extents.
Expr attention_gradient_flops(const Node& node) {
  const AttentionDims dims = dims_of_gradient(node);
  return 2 * dims.batch * dims.heads * dims.queries * dims.keys * (3 * dims.width + 2 * dims.value_width);
}

std::vector<Value*> attention_gradient_body(NodeBuilder& b, const Node& node) {
  // As the kernel, with scores and sums in float32.
  const DType dtype = node.input(kQuery)->dtype();
  const auto wide = [&](size_t operand) { return b.cast(node.input(operand), DType::float32); };
  const auto gradients = attention_gradients(
      b, node, {wide(kQuery), wide(kKey), wide(kValue), node.input(kMask), wide(kResult), wide(kOfResult)});
  return {b.cast(gradients.q, dtype), b.cast(gradients.k, dtype), b.cast(gradients.v, dtype)};
}

// --- RotaryEmbedding

// RotaryEmbedding of [b, h, s, d], or of [b, s, h·d] with the attribute num_heads.
struct RotaryDims {
  Expr batch, heads, sequence, width;
  bool packed;
};

RotaryDims rotary_dims(const Node& node) {
  const Shape& data = shape_of(node, 0);
  if (data.size() == 4) return {data[0], data[1], data[2], data[3], false};
  int64_t heads = node.get_int("num_heads", 0);
  if (data.size() != 3 || heads < 1)
    fail_node(node, "its data {} must be [batch, heads, sequence, width], or [batch, sequence, hidden] with num_heads",
              to_string(data));
  return {data[0], heads, data[1], per_head(node, data[2], heads, "data"), true};
}

void infer_rotary(Node& node) {
  RotaryDims dims = rotary_dims(node);
  int64_t rotated = node.get_int("rotary_embedding_dim", 0);
  Expr half = floordiv(rotated ? Expr(rotated) : dims.width, 2);
  bool by_position = has_operand(node, 3);
  for (size_t i : {1, 2}) {
    const Shape& cache = require_rank(node, i, i == 1 ? "the cosine cache" : "the sine cache", by_position ? 2 : 3);
    require_equal(node, cache.back(), half, "a cache's last extent", "half of what is rotated");
    if (!by_position) require_broadcast_to(node, i, "a cache", {dims.batch, dims.sequence, cache.back()});
  }
  if (by_position) {
    require_rank(node, 3, "position_ids", 2);
    require_broadcast_to(node, 3, "position_ids", {dims.batch, dims.sequence});
  }
  set_result(node, 0, node.input(0)->dtype(), node.input(0)->shape());
}

Rule rotary_rule(const Node& node) {
  RotaryDims dims = rotary_dims(node);
  Rule rule = blank_rule(node);
  DimFactors b{rule.add("b", dims.batch)}, h{rule.add("h", dims.heads)}, s{rule.add("s", dims.sequence)};
  DimFactors d{rule.add("d", dims.width, FactorKind::whole)};
  rule.operands[0] = dims.packed ? std::vector<DimFactors>{b, s, {h[0], d[0]}} : std::vector<DimFactors>{b, h, s, d};
  rule.results[0] = rule.operands[0];
  if (has_operand(node, 3)) {
    rule.operands[3] = broadcast_dims(node.input(3)->shape(), {dims.batch, dims.sequence}, {b, s});
    return rule;
  }
  for (size_t i : {1, 2}) {
    Expr half = node.input(i)->shape().back();
    rule.operands[i] = broadcast_dims(node.input(i)->shape(), {dims.batch, dims.sequence, half}, {b, s, {}});
  }
  return rule;
}

// The attribute num_heads counts all heads. Of a rank's share, the 4-D form needs none; the 3-D form says how many
// there are, or, where that differs between ranks, goes through the 4-D form.
std::vector<Value*> localize_rotary(Localizer& local) {
  int h = local.factor("h");
  RotaryDims dims = rotary_dims(local.node);
  if (!local.split[h] || (!dims.packed && !local.node.find_attribute("num_heads"))) return local.same();
  std::vector<Attribute> attributes = local.node.attributes;
  std::erase_if(attributes, [](const Attribute& attribute) { return attribute.name == "num_heads"; });
  const TensorType& type = local.outputs[0];
  if (!dims.packed) return {local.emit("RotaryEmbedding", local.inputs, type, attributes)};
  const Expr& heads = local.extents[h];
  if (auto count = heads.constant(); count && *count > 0) {
    attributes.push_back({"num_heads", *count});
    return {local.emit("RotaryEmbedding", local.inputs, type, attributes)};
  }
  const Shape& packed = *type.shape;
  Shape apart{packed[0], packed[1], heads, dims.width}, turned{packed[0], heads, packed[1], dims.width};
  auto reshape = [&](Value* value, const Shape& shape) {
    return local.emit("Reshape", {value, local.graph.add_expression("", shape)}, {type.dtype, shape},
                      {{"allowzero", int64_t{1}}});
  };
  auto swap = [&](Value* value, const Shape& shape) {
    return local.emit("Transpose", {value}, {type.dtype, shape}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  };
  std::vector<Value*> operands = local.inputs;
  operands[0] = swap(reshape(operands[0], apart), turned);
  Value* rotated = local.emit("RotaryEmbedding", operands, {type.dtype, turned}, attributes);
  return {reshape(swap(rotated, apart), packed)};
}

Expr rotary_flops(const Node& node) {
  return 3 * elements_of(*node.input(0));
}

// Positions are rows of the caches.
Indices rotary_indices(const Node& node) {
  Indices indices{.operand = 3};
  if (node.input(3) && node.input(1)->has_shape() && node.input(1)->rank() > 0)
    indices.extents = {node.input(1)->shape()[0]};
  return indices;
}

}  // namespace

std::vector<OpDef> attention_ops() {
  return {
      // The keys and values that are kept are the past ones and the new ones, whatever asks for them.
      {.type = "Attention",
       .infer = infer_attention,
       .rule = attention_rule,
       .flops = attention_flops,
       .gradient = attention_gradient,
       .made_of = {{}, {4, 1}, {5, 2}, {}}},
      {.type = "AttentionGradient",
       .domain = kGradientDomain,
       .infer = infer_attention_gradient,
       .rule = attention_gradient_rule,
       .flops = attention_gradient_flops,
       .body = attention_gradient_body},
      {.type = "RotaryEmbedding",
       .infer = infer_rotary,
       .rule = rotary_rule,
       .flops = rotary_flops,
       .localize = localize_rotary,
       .gradient = rotary_gradient,
       .untrained = {1, 2},
       .indices = rotary_indices},
  };
}

}  // namespace tessera::ops
