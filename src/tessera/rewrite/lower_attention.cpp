#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower.h"

// Attention with windows becomes Attention with a mask, unless its windows say which keys a rank needs; with its scores
// as a result, products and a Softmax.
namespace tessera::rewrite {
namespace {

using ops::fail_node;
using Values = std::vector<Value*>;

enum Operand : size_t { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kLengths };
enum Result : size_t { kOutput, kPresentKey, kPresentValue, kScores };

bool has_windows(const Node& node) {
  return node.get_int("left_window_size", -1) >= 0 || node.get_int("right_window_size", -1) >= 0;
}

bool needs_lowering(const Node& node) {
  const bool known = std::all_of(node.inputs.begin(), node.inputs.end(),
                                 [](const Value* operand) { return !operand || operand->has_shape(); });
  return node.output(kScores) || (has_windows(node) && !(known && ops::sees_neighbours(node)));
}

class AttentionLowering {
 public:
  explicit AttentionLowering(Lowerer& l) : l_(l), b_(l.b) {
    packed_ = l.in(kQuery)->rank() == 3;
    const Shape &q = l.in(kQuery)->shape(), &k = l.in(kKey)->shape();
    batch_ = q.at(0);
    queries_ = q.at(packed_ ? 1 : 2);
    past_ = l.has(kPastKey) ? l.in(kPastKey)->shape().at(2) : Expr(0);
    keys_ = past_ + k.at(packed_ ? 1 : 2);
  }

  // The mask does what the windows would.
  Values with_mask() {
    Values operands = l_.node.inputs;
    operands.resize(std::max<size_t>(operands.size(), kMask + 1));
    operands[kMask] = masked(in_windows());
    std::vector<Attribute> attributes = l_.node.attributes;
    std::erase_if(attributes, [](const Attribute& a) { return a.name.ends_with("_window_size"); });
    return b_.emit_all("", "Attention", operands, attributes, l_.node.outputs.size());
  }

  Values spelt_out() {
    const DType dtype = l_.in(kQuery)->dtype();
    const int64_t given_heads = l_.node.get_int("q_num_heads", 0), given_kv = l_.node.get_int("kv_num_heads", 0);
    Value* q = by_heads(l_.in(kQuery), given_heads);
    Value* k = by_heads(l_.in(kKey), given_kv);
    Value* v = by_heads(l_.in(kValue), given_kv);
    if (l_.has(kPastKey)) k = b_.emit("Concat", {l_.in(kPastKey), k}, {attribute("axis", int64_t{2})});
    if (l_.has(kPastValue)) v = b_.emit("Concat", {l_.in(kPastValue), v}, {attribute("axis", int64_t{2})});
    const Expr heads = q->shape().at(1), kv_heads = k->shape().at(1), width = q->shape().at(3);
    const auto group = Expr::exact_divide(heads, kv_heads);
    if (!group) fail_node(l_.node, "{} heads cannot share {} of keys evenly", heads.str(), kv_heads.str());
    const float* scale = l_.node.get<float>("scale");
    Value* factor = scale && *scale != 0 ? b_.number(q, *scale)
                                         : b_.div(b_.number(q, 1), b_.unary("Sqrt", b_.scalar(dtype, width)));
    // The query heads that share a key head are rows of one product.
    Value* rows = b_.reshape(b_.mul(q, factor), {batch_, kv_heads, *group * queries_, width});
    Value* scores = b_.reshape(b_.emit("MatMul", {rows, b_.turn(k)}), {batch_, heads, queries_, keys_});
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
    Value* y = b_.emit("MatMul", {b_.reshape(weights, {batch_, kv_heads, *group * queries_, keys_}), v});
    y = b_.reshape(y, {batch_, heads, queries_, v->shape().at(3)});
    if (packed_) y = b_.reshape(b_.transpose(y, {0, 2, 1, 3}), {batch_, queries_, heads * v->shape().at(3)});
    return {y, k, v, stages[static_cast<size_t>(mode)]};
  }

 private:
  // [batch, sequence, heads · width] as [batch, heads, sequence, width].
  Value* by_heads(Value* x, int64_t heads) {
    if (!packed_) return x;
    const Shape& shape = x->shape();
    const auto width = heads > 0 ? Expr::exact_divide(shape.at(2), Expr(heads)) : std::nullopt;
    if (!width) fail_node(l_.node, "{} elements do not divide into {} heads", shape.at(2).str(), heads);
    return b_.transpose(b_.reshape(x, {shape[0], shape[1], Expr(heads), *width}), {0, 2, 1, 3});
  }

  Value* key_places() { return b_.reshape(b_.range(keys_), {1, 1, 1, keys_}); }

  // How many valid keys each sample has: [batch, 1, 1, 1].
  Value* lengths() { return b_.reshape(b_.cast(l_.in(kLengths), DType::int64), {batch_, 1, 1, 1}); }

  // The place of each query among the keys: [batch or 1, 1, queries, 1].
  Value* query_places() {
    Value* own = b_.reshape(b_.range(queries_), {1, 1, queries_, 1});
    if (!l_.has(kLengths)) return b_.add(own, b_.scalar(DType::int64, past_));
    return b_.add(own, b_.sub(lengths(), b_.scalar(DType::int64, queries_)));
  }

  static Value* both(ops::NodeBuilder& b, Value* one, Value* other) {
    return one && other ? b.emit("And", {one, other}) : one ? one : other;
  }

  // Whether a query may see a key, by the windows.
  Value* in_windows() {
    const int64_t left = l_.node.get_int("left_window_size", -1), right = l_.node.get_int("right_window_size", -1);
    Value* seen = nullptr;
    if (left >= 0) {
      Value* first = b_.sub(query_places(), b_.graph.constant_scalar(DType::int64, static_cast<double>(left)));
      seen = b_.emit("GreaterOrEqual", {key_places(), first});
    }
    if (right >= 0) {
      Value* last = b_.add(query_places(), static_cast<double>(right));
      seen = both(b_, seen, b_.emit("LessOrEqual", {key_places(), last}));
    }
    return seen;
  }

  // The same by all that restricts it but the mask.
  Value* allowed() {
    Value* seen = in_windows();
    if (l_.node.get_int("is_causal", 0) != 0)
      seen = both(b_, seen, b_.emit("LessOrEqual", {key_places(), query_places()}));
    if (l_.has(kLengths)) seen = both(b_, seen, b_.emit("Less", {key_places(), lengths()}));
    return seen;
  }

  Value* as_bias(Value* seen, const Value* like) {
    return b_.where(seen, b_.number(like, 0), b_.number(like, -std::numeric_limits<double>::infinity()));
  }

  // The node's mask where a query may see a key, as far as `seen` says so. Null: all are seen.
  Value* masked(Value* seen) {
    if (!l_.has(kMask)) return seen;
    Value* mask = l_.in(kMask);
    const bool is_boolean = mask->dtype() == DType::boolean;
    const Expr covered = mask->rank() == 0 ? Expr(1) : mask->shape().back();
    if (!covered.is(1) && covered != keys_) {
      // It may end before the keys do; those are not seen.
      std::vector<Expr> around(2 * mask->rank(), 0);
      around.back() = keys_ - covered;
      Value* nothing = is_boolean ? b_.graph.constant_scalar(DType::boolean, 0)
                                  : b_.number(mask, -std::numeric_limits<double>::infinity());
      mask = b_.emit("Pad", {mask, b_.shape_operand(around), nothing});
    }
    if (!seen) return mask;
    if (is_boolean) return b_.emit("And", {mask, seen});
    return b_.where(seen, mask, -std::numeric_limits<double>::infinity());
  }

  Lowerer& l_;
  ops::NodeBuilder& b_;
  bool packed_ = false;
  Expr batch_, queries_, past_, keys_;
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
