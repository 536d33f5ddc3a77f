#include "tessera/ops/attention.h"

#include <algorithm>

#include "tessera/ops/examples/examples.h"
#include "tessera/ops/gradients/backward.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/require.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {

namespace {

void infer_attention(Node& node) {
  const AttentionDims dims = attention_dims(node);
  const DType dtype = require_same_dtype(node, {kQuery, kKey});
  // Where ranks have different shares, the expressions may not show it; kernels check the numbers.
  if (dims.heads.is_constant() && dims.kv_heads.is_constant()) (void)heads_per_key(node, dims);
  require_mask(node, dims);
  require_sinks(node, dims);
  set_attention_results(node, dims, dtype);
  set_result(node, kScores, dtype, dims.scores());
}

// The scores, as a result, come from the operator itself only.
FactorKind kind_of_queries(const Node& node) {
  if (!is_positional(node)) return FactorKind::pass;
  return node.output(kScores) ? FactorKind::whole : FactorKind::position;
}

// The factor of the queries.
int add_queries(Rule& rule, const Node& node, const AttentionDims& dims) {
  if (!sees_neighbours(node)) return rule.add("s", dims.queries, kind_of_queries(node));
  Window window;
  window.first = -window_of(node, "left_window_size");
  window.last = node.get_int("is_causal", 0) != 0 ? 0 : window_of(node, "right_window_size");
  const int s = rule.add("s", dims.queries, FactorKind::halo);
  for (size_t operand : {kKey, kValue}) rule.factors[s].windows[static_cast<int>(operand)] = window;
  return s;
}

// The 3-D form: heads are inside the hidden dimensions, and their counts in attributes, so that those are whole.
// Raising to the 4-D form is what splits them.
Rule packed_attention_rule(const Node& node, const AttentionDims& dims) {
  Rule rule = blank_rule(node);
  DimFactors b{rule.add("b", dims.batch)};
  DimFactors s{add_queries(rule, node, dims)};
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] && i != kMask && i != kSink) rule.operands[i][0] = b;
  for (size_t r = 0; r < node.outputs.size(); ++r)
    if (node.outputs[r]) rule.results[r][0] = b;
  rule.operands[kQuery][1] = rule.results[0][1] = s;
  if (sees_neighbours(node)) rule.operands[kKey][1] = rule.operands[kValue][1] = s;
  if (has_operand(node, kMask))
    rule.operands[kMask] = broadcast_dims(node.input(kMask)->shape(), dims.scores(), {b, {}, s, {}});
  if (node.output(3)) rule.results[3][2] = s;
  return rule;
}

// Whether ranks may each have some of the keys: all keys are in the operands K and V, the mask has all of them, too,
// and there is no sink, which would count once for each rank.
bool can_split_keys(const Node& node, const AttentionDims& dims) {
  return !has_operand(node, kPastKey) && !has_operand(node, kSink) && !node.output(kScores) &&
         mask_has_all_keys(node, dims);
}

// The rule of the 4-D form. `heads` are the factors of the query heads, `kv` those of the key and value heads.
Rule rule_by_heads(const Node& node, const AttentionDims& dims, Rule rule, const DimFactors& heads,
                   const DimFactors& kv) {
  const DimFactors b{rule.add("b", dims.batch)}, s{add_queries(rule, node, dims)};
  const DimFactors d{rule.add("d", dims.width, FactorKind::whole)}, w{rule.add("w", dims.value_width)};
  // Keys at the positions of their queries have no factor of their own.
  const bool with_queries = sees_neighbours(node);
  const bool can_split = !with_queries && can_split_keys(node, dims);
  const DimFactors t{with_queries ? s[0]
                                  : rule.add("t", dims.keys, can_split ? FactorKind::weighted : FactorKind::whole)};
  if (!with_queries) rule.factors[t[0]].flat = w;
  rule.operands[kQuery] = {b, heads, s, d};
  rule.operands[kKey] = {b, kv, t, d};
  rule.operands[kValue] = {b, kv, t, w};
  rule.results[0] = {b, heads, s, w};
  if (has_operand(node, kMask))
    rule.operands[kMask] =
        broadcast_dims(node.input(kMask)->shape(), dims.scores(), {b, heads, s, can_split ? t : DimFactors()});
  if (has_operand(node, kPastKey)) {
    rule.operands[kPastKey] = {b, kv, {}, d};
    rule.operands[kPastValue] = {b, kv, {}, w};
  }
  if (has_operand(node, kKeyLengths)) rule.operands[kKeyLengths] = {b};
  if (has_operand(node, kSink)) rule.operands[kSink] = {heads};
  const DimFactors all = has_operand(node, kPastKey) ? DimFactors() : t;
  if (node.output(kPresentKey)) rule.results[kPresentKey] = {b, kv, all, d};
  if (node.output(kPresentValue)) rule.results[kPresentValue] = {b, kv, all, w};
  if (node.output(kScores)) rule.results[kScores] = {b, heads, s, {}};
  return rule;
}

// "b (kv g) s d, b kv t d, b kv t w -> b (kv g) s w | d: whole, t: weighted": kv counts the key and value heads, g the
// query heads that share one.
Rule attention_rule(const Node& node) {
  const AttentionDims dims = attention_dims(node);
  if (dims.packed) return packed_attention_rule(node, dims);
  Rule rule = blank_rule(node);
  const DimFactors kv{rule.add("kv", dims.kv_heads)};
  DimFactors heads = kv;
  if (dims.heads != dims.kv_heads) heads.push_back(rule.add("g", heads_per_key(node, dims)));
  return rule_by_heads(node, dims, std::move(rule), heads, kv);
}

// "b h s d, b 1 t d, b 1 t w -> b h s w": query heads are split however they share keys, and every rank has all key and
// value heads. The same as the first rule where no heads share any.
Rule attention_rule_by_query_heads(const Node& node) {
  const AttentionDims dims = attention_dims(node);
  if (dims.packed || dims.heads == dims.kv_heads || node.output(kScores)) return attention_rule(node);
  Rule rule = blank_rule(node);
  const DimFactors heads{rule.add("h", dims.heads, FactorKind::index)};
  return rule_by_heads(node, dims, std::move(rule), heads, {});
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
  require_mask(node, dims);
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
    rule.operands[kMask] = broadcast_dims(node.input(kMask)->shape(), dims.scores(), {b, heads, s, {}});
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

// The attribute num_heads counts all heads. A rank's 4-D form needs none; its 3-D form says how many
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
       .finer_rule = attention_rule_by_query_heads,
       .flops = attention_flops,
       .localize = localize_attention,
       .gradient = attention_gradient,
       .body = attention_body,
       .wide_sums = true,
       .made_of = {{}, {4, 1}, {5, 2}, {}},
       .examples = attention_examples},
      attention_shard_op(),
      {.type = "AttentionGradient",
       .domain = kGradientDomain,
       .infer = infer_attention_gradient,
       .rule = attention_gradient_rule,
       .flops = attention_gradient_flops,
       .no_gradient = "second derivatives are not taken",
       .body = attention_gradient_body,
       .examples = attention_gradient_examples},
      {.type = "RotaryEmbedding",
       .infer = infer_rotary,
       .rule = rotary_rule,
       .flops = rotary_flops,
       .localize = localize_rotary,
       .gradient = rotary_gradient,
       .untrained = {1, 2},
       .indices = rotary_indices,
       .examples = rotary_examples},
  };
}

}  // namespace tessera::ops
