#include "tessera/ops/attention.h"

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/ops/library/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lower.h"

// Attention with windows becomes Attention with a mask, unless its windows tell which keys a rank needs. Attention
// whose scores are a result becomes products and a Softmax.
namespace tessera::rewrite {
namespace {

using namespace ops;
using Values = std::vector<Value*>;

bool needs_lowering(const Node& node) {
  const bool known = std::all_of(node.inputs.begin(), node.inputs.end(),
                                 [](const Value* operand) { return !operand || operand->has_shape(); });
  return node.output(kScores) || (has_windows(node) && !(known && sees_neighbours(node)));
}

class AttentionLowering {
 public:
  explicit AttentionLowering(Lowerer& l) : l_(l), b_(l.b), dims_(attention_dims(l.node)) {
    require_mask(l.node, dims_);
  }

  // With the windows as part of the mask.
  Values with_mask() {
    Values operands = l_.node.inputs;
    operands.resize(std::max<size_t>(operands.size(), kMask + 1));
    operands[kMask] = masked(seen_in_windows(b_, l_.node, key_places(), query_places()));
    std::vector<Attribute> attributes = l_.node.attributes;
    std::erase_if(attributes, [](const Attribute& a) { return a.name.ends_with("_window_size"); });
    return b_.emit_all("", "Attention", operands, attributes, l_.node.outputs.size());
  }

  Values spelt_out() {
    const DType dtype = l_.in(kQuery)->dtype();
    Value* q = with_heads_apart(b_, l_.in(kQuery), dims_.heads);
    Value* k = with_heads_apart(b_, l_.in(kKey), dims_.kv_heads);
    Value* v = with_heads_apart(b_, l_.in(kValue), dims_.kv_heads);
    if (l_.has(kPastKey)) k = b_.emit("Concat", {l_.in(kPastKey), k}, {attribute("axis", int64_t{2})});
    if (l_.has(kPastValue)) v = b_.emit("Concat", {l_.in(kPastValue), v}, {attribute("axis", int64_t{2})});
    const Expr sharing = heads_per_key(l_.node, dims_) * dims_.queries;
    const float* scale = l_.node.get<float>("scale");
    Value* factor = scale && *scale != 0 ? b_.number(q, *scale)
                                         : b_.div(b_.number(q, 1), b_.unary("Sqrt", b_.scalar(dtype, dims_.width)));
    // The query heads that share a key head are rows of one product.
    Value* rows = b_.reshape(b_.mul(q, factor), {dims_.batch, dims_.kv_heads, sharing, dims_.width});
    Value* scores = b_.reshape(b_.emit("MatMul", {rows, b_.turn(k)}), dims_.scores());
    Values stages = {scores};
    const float cap = l_.node.get_float("softcap", 0);
    if (cap > 0) scores = b_.mul(b_.unary("Tanh", b_.div(scores, b_.number(scores, cap))), cap);
    stages.push_back(scores);
    if (Value* mask = masked(allowed())) {
      Value* bias = mask->dtype() == DType::boolean ? as_bias(mask, scores) : b_.cast(mask, dtype);
      scores = b_.add(scores, bias);
    }
    stages.push_back(scores);
    const auto precision = static_cast<DType>(l_.node.get_int("softmax_precision", static_cast<int64_t>(dtype)));
    Value* wide = b_.cast(scores, precision);
    Value* weights = b_.emit("Softmax", {wide}, {attribute("axis", int64_t{-1})});
    Value* most = b_.emit("ReduceMax", {wide, b_.graph.constant_int64({-1})});
    Value* none = b_.emit("Equal", {most, b_.number(most, -std::numeric_limits<double>::infinity())});
    weights = b_.cast(b_.where(none, b_.number(weights, 0), weights), dtype);
    stages.push_back(weights);
    const int64_t mode = l_.node.get_int("qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3) fail_node(l_.node, "its qk_matmul_output_mode {} must be 0 to 3", mode);
    Value* y = b_.emit("MatMul", {b_.reshape(weights, {dims_.batch, dims_.kv_heads, sharing, dims_.total()}), v});
    y = b_.reshape(y, {dims_.batch, dims_.heads, dims_.queries, dims_.value_width});
    if (dims_.packed)
      y = b_.reshape(b_.transpose(y, {0, 2, 1, 3}), {dims_.batch, dims_.queries, dims_.heads * dims_.value_width});
    return {y, k, v, stages[static_cast<size_t>(mode)]};
  }

 private:
  Value* key_places() { return b_.reshape(b_.range(dims_.total()), {1, 1, 1, dims_.total()}); }

  // The number of valid keys of each sample: [batch, 1, 1, 1].
  Value* lengths() { return b_.reshape(b_.cast(l_.in(kKeyLengths), DType::int64), {dims_.batch, 1, 1, 1}); }

  // The place of each query among the keys: [batch or 1, 1, queries, 1].
  Value* query_places() {
    Value* own = b_.reshape(b_.range(dims_.queries), {1, 1, dims_.queries, 1});
    if (!l_.has(kKeyLengths)) return b_.add(own, b_.scalar(DType::int64, dims_.past));
    return b_.add(own, b_.sub(lengths(), b_.scalar(DType::int64, dims_.queries)));
  }

  // Whether a query may see a key, by all that restricts it but the mask.
  Value* allowed() {
    Value* seen = seen_by_position(b_, l_.node, key_places(), query_places());
    return l_.has(kKeyLengths) ? b_.both(seen, b_.emit("Less", {key_places(), lengths()})) : seen;
  }

  Value* as_bias(Value* seen, const Value* like) {
    return b_.where(seen, b_.number(like, 0), b_.number(like, -std::numeric_limits<double>::infinity()));
  }

  Value* masked(Value* seen) { return mask_where_seen(b_, l_.in(kMask), seen, dims_.total()); }

  Lowerer& l_;
  NodeBuilder& b_;
  const AttentionDims dims_;
};

Values attention(Lowerer& l) {
  AttentionLowering lowering(l);
  return l.wants(kScores) ? lowering.spelt_out() : lowering.with_mask();
}

}  // namespace

std::vector<Lowering> attention_lowerings() {
  return {{"Attention", 3, attention, {}, needs_lowering}};
}

}  // namespace tessera::rewrite
