#include <functional>
#include <limits>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/ops/library/infer.h"
#include "tessera/rewrite/canonical/uniform.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lower.h"

// Operators of the domain com.microsoft that ONNX Runtime's optimizers and model builders write.
namespace tessera::rewrite {
namespace {

using ops::fail_node;
using Values = std::vector<Value*>;

constexpr std::string_view kDomain = "com.microsoft";

void require_operand(const Lowerer& l, size_t operand) {
  if (!l.has(operand)) fail_node(l.node, "its operand {} is missing", operand);
}

/// The operands of EmbedLayerNormalization; in its quantized form, tables, scale and bias are codes.
struct Embedding {
  enum Operand : size_t { kWords, kSegments, kWordTable, kPlaceTable, kSegmentTable, kScale, kBias, kMask, kPlaces };
  /// An operand as floats: with indices, these rows of it. Null if it is missing.
  std::function<Value*(Operand operand, Value* indices)> floats;
  bool has_places = true;
};

// Embeddings of words, positions and segments, added and normalized.
Values embedded(Lowerer& l, const Embedding& of) {
  using enum Embedding::Operand;
  for (const Embedding::Operand operand : {kWordTable, kPlaceTable, kScale, kBias}) require_operand(l, operand);
  const Shape ids = l.in(kWords)->shape();
  if (ids.size() != 2) fail_node(l.node, "its input_ids {} must be [batch, sequence]", to_string(ids));
  Value* places = of.has_places && l.has(kPlaces) ? l.in(kPlaces) : l.b.reshape(l.b.range(ids[1]), {1, ids[1]});
  Value* sum = l.b.add(of.floats(kWordTable, l.in(kWords)), of.floats(kPlaceTable, places));
  if (l.has(kSegmentTable) && l.has(kSegments)) sum = l.b.add(sum, of.floats(kSegmentTable, l.in(kSegments)));
  Value* y = l.b.emit("LayerNormalization", {sum, of.floats(kScale, nullptr), of.floats(kBias, nullptr)},
                      {attribute("axis", int64_t{-1}), attribute("epsilon", l.node.get_float("epsilon", 1e-12F))});
  Value* lengths = nullptr;
  if (l.wants(1))
    lengths =
        l.has(kMask) ? l.b.sum(l.b.cast(l.in(kMask), DType::int32), {1}, false) : l.b.zeros(DType::int32, {ids[0]});
  return {y, lengths, l.wants(2) ? sum : nullptr};
}

Values embed_layer_norm(Lowerer& l) {
  return embedded(l, {[&](Embedding::Operand operand, Value* indices) {
                    return indices ? l.b.emit("Gather", {l.in(operand), indices}) : l.in(operand);
                  }});
}

// Tables, scale and bias are codes; their scales follow the mask, and then their zero points.
Values quantized_embed_layer_norm(Lowerer& l) {
  constexpr size_t kFirst = Embedding::kWordTable, kScales = 8, kZeroPoints = 13;
  const auto floats = [&](Embedding::Operand operand, Value* indices) {
    Value* codes = indices ? l.b.emit("Gather", {l.in(operand), indices}) : l.in(operand);
    const size_t which = operand - kFirst;
    require_operand(l, kScales + which);
    return l.b.emit("DequantizeLinear",
                    {codes, l.b.as_number(l.in(kScales + which)), l.b.as_number(l.in(kZeroPoints + which))});
  };
  return embedded(l, {floats, false});
}

// Positions [batch, sequence]: `given`, or counted from `given` if that is one number.
Value* positions(Lowerer& l, Value* given, const Expr& batch, const Expr& sequence) {
  if (given->rank() == 2) return given;
  Value* from = l.b.reshape(given, {1, 1});
  return l.b.expand(l.b.add(from, l.b.reshape(l.b.range(sequence), {1, sequence})), {batch, sequence});
}

Value* rotated(Lowerer& l, Value* x, Value* cosines, Value* sines, Value* places, int64_t heads, int64_t interleaved,
               int64_t width) {
  std::vector<Attribute> attributes = {attribute("interleaved", interleaved), attribute("rotary_embedding_dim", width)};
  if (x->rank() == 3) attributes.push_back(attribute("num_heads", heads));
  return l.b.emit("RotaryEmbedding", {x, cosines, sines, places}, attributes);
}

Values rotary(Lowerer& l) {
  const Shape x = l.in(0)->shape();
  if (l.node.get_int("is_packed_batching", 0) != 0 || l.node.get_float("scale", 1) != 1)
    fail_node(l.node, "packed batches and scales are not supported; export without them");
  const size_t sequence = x.size() == 3 ? 1 : 2;
  const int64_t width = l.node.get_int("rotary_embedding_dim", 0);
  int64_t heads = l.node.get_int("num_heads", 0);
  if (x.size() == 3 && heads == 0) {
    const auto count = Expr::exact_divide(x[2], l.in(2)->shape().at(1) * 2);
    if (!count || !count->constant())
      fail_node(l.node, "its num_heads is missing, and does not follow from its shapes");
    heads = *count->constant();
  }
  Value* places = positions(l, l.in(1), x[0], x.at(sequence));
  return {rotated(l, l.in(0), l.in(2), l.in(3), places, heads, l.node.get_int("interleaved", 0), width)};
}

Values fused_matmul(Lowerer& l) {
  const auto turned = [&](size_t operand, const char* matrix, const char* batch) {
    Value* x = l.in(operand);
    if (l.node.get_int(batch, 0) != 0) {
      // The first dimension goes before the last.
      std::vector<int64_t> order;
      for (size_t d = 1; d + 1 < x->rank(); ++d) order.push_back(static_cast<int64_t>(d));
      order.push_back(0);
      order.push_back(static_cast<int64_t>(x->rank()) - 1);
      x = l.b.transpose(x, order);
    }
    return l.node.get_int(matrix, 0) != 0 && x->rank() > 1 ? l.b.turn(x) : x;
  };
  Value* y = l.b.emit("MatMul", {turned(0, "transA", "transBatchA"), turned(1, "transB", "transBatchB")});
  return {l.b.mul(y, l.node.get_float("alpha", 1))};
}

/// The operands of ONNX's Attention, in the 3-D form.
struct AttentionParts {
  Value *query, *key, *value;
  Value* mask = nullptr;
  Value *past_key = nullptr, *past_value = nullptr, *sink = nullptr;
  int64_t heads = 1, kv_heads = 1;
  bool causal = false;
  float softcap = 0;
};

// The output, and the present keys and values.
Values attend(Lowerer& l, const AttentionParts& parts) {
  std::vector<Attribute> attributes = {attribute("q_num_heads", parts.heads), attribute("kv_num_heads", parts.kv_heads),
                                       attribute("is_causal", int64_t{parts.causal}),
                                       attribute("softcap", parts.softcap)};
  if (const float scale = l.node.get_float("scale", 0); scale != 0) attributes.push_back(attribute("scale", scale));
  Values operands = {parts.query,      parts.key, parts.value, parts.mask, parts.past_key,
                     parts.past_value, nullptr,   nullptr,     parts.sink};
  while (!operands.back()) operands.pop_back();
  return l.b.emit_all("", "Attention", operands, attributes, 3);
}

int64_t heads_of(const Lowerer& l, const char* name) {
  const int64_t heads = l.node.get_int(name, 0);
  if (heads < 1) fail_node(l.node, "its {} is {}; it must be at least 1", name, heads);
  return heads;
}

// A bias that hides keys. `given` has a 1 for each visible key, [batch, keys], or the number of visible keys, [batch].
Value* padding_bias(Lowerer& l, Value* given, const Expr& batch, const Expr& keys, DType dtype) {
  Value* seen = nullptr;
  if (given->rank() == 2) {
    seen = l.b.reshape(l.b.greater(given, 0), {batch, 1, 1, keys});
  } else if (given->rank() == 1 && given->shape().at(0) == batch) {
    Value* places = l.b.reshape(l.b.range(keys), {1, keys});
    Value* counts = l.b.reshape(l.b.cast(given, DType::int64), {batch, 1});
    seen = l.b.reshape(l.b.emit("Less", {places, counts}), {batch, 1, 1, keys});
  } else {
    fail_node(l.node, "its mask {} must be [batch, keys], or the number of each sample's keys, [batch]",
              to_string(given->shape()));
  }
  Value* hidden = l.b.graph.constant_scalar(dtype, l.node.get_float("mask_filter_value", -10000));
  return l.b.where(seen, l.b.graph.constant_scalar(dtype, 0), hidden);
}

Value* sum_of(Lowerer& l, Value* a, Value* b) {
  return a && b ? l.b.add(a, b) : a ? a : b;
}

Values multi_head_attention(Lowerer& l) {
  enum Operand : size_t { kQuery, kKey, kValue, kBias, kPadding, kScores, kPastKey, kPastValue };
  const int64_t heads = heads_of(l, "num_heads");
  if (!l.has(kKey) || !l.has(kValue) || l.in(kQuery)->rank() != 3 || l.in(kKey)->rank() != 3 ||
      l.in(kValue)->rank() != 3)
    fail_node(l.node,
              "packed queries, keys and values, and keys in heads, are not supported; give [batch, sequence, "
              "hidden] each");
  AttentionParts parts{l.in(kQuery), l.in(kKey), l.in(kValue)};
  parts.heads = parts.kv_heads = heads;
  if (l.has(kBias)) {
    const Expr q = parts.query->shape().at(2), k = parts.key->shape().at(2), v = parts.value->shape().at(2);
    parts.query = l.b.add(parts.query, l.b.slice(l.in(kBias), 0, 0, q));
    parts.key = l.b.add(parts.key, l.b.slice(l.in(kBias), 0, q, q + k));
    parts.value = l.b.add(parts.value, l.b.slice(l.in(kBias), 0, q + k, q + k + v));
  }
  parts.past_key = l.in(kPastKey);
  parts.past_value = l.in(kPastValue);
  Expr keys = parts.key->shape().at(1);
  if (parts.past_key) keys = keys + parts.past_key->shape().at(2);
  if (l.has(kPadding))
    parts.mask = padding_bias(l, l.in(kPadding), parts.query->shape().at(0), keys, parts.query->dtype());
  parts.mask = sum_of(l, parts.mask, l.in(kScores));
  parts.causal = l.node.get_int("unidirectional", 0) != 0;
  return attend(l, parts);
}

/// The optional operands of an Attention with one input; null: missing.
struct OneInput {
  Value *padding, *past, *scores;
};

// Attention whose queries, keys and values are one product. Past and present each hold keys and values in one tensor.
Values attend_to_product(Lowerer& l, Value* all, const OneInput& beside) {
  const int64_t heads = heads_of(l, "num_heads");
  if (l.node.get_int("do_rotary", 0) != 0) fail_node(l.node, "do_rotary is not supported; export without it");
  std::vector<int64_t> sizes = l.node.get_ints("qkv_hidden_sizes");
  if (sizes.empty()) {
    const auto each = Expr::exact_divide(all->shape().back(), Expr(3));
    if (!each || !each->constant()) fail_node(l.node, "its weight does not divide into queries, keys and values");
    sizes.assign(3, *each->constant());
  }
  if (sizes.size() != 3)
    fail_node(l.node, "its qkv_hidden_sizes has {}; it needs 3", counted(sizes.size(), "entry", "entries"));
  const auto piece = [&](int64_t from, int64_t size) { return l.b.slice(all, 2, from, from + size); };
  AttentionParts parts{piece(0, sizes[0]), piece(sizes[0], sizes[1]), piece(sizes[0] + sizes[1], sizes[2])};
  parts.heads = parts.kv_heads = heads;
  parts.causal = l.node.get_int("unidirectional", 0) != 0;
  Expr keys = parts.key->shape().at(1);
  if (beside.past) {
    const Shape past = beside.past->shape();
    const Shape one(past.begin() + 1, past.end());
    parts.past_key = l.b.reshape(l.b.slice(beside.past, 0, 0, 1), one);
    parts.past_value = l.b.reshape(l.b.slice(beside.past, 0, 1, 2), one);
    keys = keys + past.at(3);
  }
  if (beside.padding)
    parts.mask = padding_bias(l, beside.padding, parts.query->shape().at(0), keys, parts.query->dtype());
  parts.mask = sum_of(l, parts.mask, beside.scores);
  Values results = attend(l, parts);
  if (!l.wants(1)) return {results[0]};
  const auto in_front = [&](Value* x) {
    Shape shape = x->shape();
    shape.insert(shape.begin(), 1);
    return l.b.reshape(x, shape);
  };
  return {results[0],
          l.b.emit("Concat", {in_front(results[1]), in_front(results[2])}, {attribute("axis", int64_t{0})})};
}

void require_one_input(const Lowerer& l) {
  if (l.in(0)->rank() != 3 || l.in(1)->rank() != 2)
    fail_node(l.node, "its input {} and weight {} must be [batch, sequence, hidden] and [hidden, all heads]",
              to_string(l.in(0)->shape()), to_string(l.in(1)->shape()));
}

Values attention_of_one_input(Lowerer& l) {
  enum Operand : size_t { kInput, kWeight, kBias, kPadding, kPast, kScores };
  require_one_input(l);
  Value* all = l.b.emit("MatMul", {l.in(kInput), l.in(kWeight)});
  if (l.has(kBias)) all = l.b.add(all, l.in(kBias));
  return attend_to_product(l, all, {l.in(kPadding), l.in(kPast), l.in(kScores)});
}

// The input and the weight are codes.
Values quantized_attention(Lowerer& l) {
  enum Operand : size_t { kInput, kWeight, kBias, kScale, kWeightScale, kPadding, kZero, kWeightZero, kPast };
  require_one_input(l);
  Value* all = scaled_product(l.b, l.node, {l.in(kInput), l.b.as_number(l.in(kScale)), l.b.as_number(l.in(kZero))},
                              {l.in(kWeight), l.in(kWeightScale), l.in(kWeightZero)}, l.in(kBias));
  return attend_to_product(l, all, {l.in(kPadding), l.in(kPast), nullptr});
}

/// Groups of query heads share key heads. Each sample's new keys follow its own past ones, which may be fewer than the
/// past has room for.
class GroupQueryAttention {
 public:
  explicit GroupQueryAttention(Lowerer& l)
      : l_(l), b_(l.b), heads_(heads_of(l, "num_heads")), kv_heads_(heads_of(l, "kv_num_heads")) {}

  Values run() {
    if (l_.node.get_int("qk_output", 0) != 0) fail_node(l_.node, "qk_output is not supported; export without it");
    for (size_t operand = kSinks + 1; operand < l_.node.inputs.size(); ++operand)
      if (l_.has(operand))
        fail_node(l_.node, "operand {} (a scale of caches of codes) is not supported; export without it", operand);
    if (l_.has(kSinks))
      parts_.sink = l_.in(kSinks);
    else if (l_.node.get_int("smooth_softmax", 0) == 1)
      parts_.sink = b_.zeros(DType::float32, {heads_});
    require_operand(l_, kLengths);
    split_operands();
    batch_ = parts_.query->shape().at(0);
    fresh_ = parts_.query->shape().at(1);
    parts_.heads = heads_;
    parts_.kv_heads = kv_heads_;
    parts_.softcap = l_.node.get_float("softcap", 0);
    if (past_is_full()) return append();
    place();
    rotate();
    Value* keys = with_past(parts_.key, kPastKey);
    Value* values = with_past(parts_.value, kPastValue);
    parts_.mask = seen(keys->shape().at(2));
    parts_.key = packed(keys);
    parts_.value = packed(values);
    return {attend(l_, parts_)[0], keys, values};
  }

 private:
  enum Operand : size_t {
    kQuery,
    kKey,
    kValue,
    kPastKey,
    kPastValue,
    kLengths,
    kTotal,
    kCosines,
    kSines,
    kPlaces,
    kScores,
    kSinks
  };

  void split_operands() {
    Value* query = l_.in(kQuery);
    if (l_.has(kKey) && l_.has(kValue)) {
      set_operands(query, l_.in(kKey), l_.in(kValue));
      return;
    }
    const auto width = Expr::exact_divide(query->shape().at(2), Expr(heads_ + 2 * kv_heads_));
    if (!width) fail_node(l_.node, "its query does not divide into {} heads", heads_ + 2 * kv_heads_);
    const Expr q = *width * heads_, k = *width * kv_heads_;
    set_operands(b_.slice(query, 2, 0, q), b_.slice(query, 2, q, q + k), b_.slice(query, 2, q + k, q + k + k));
  }

  void set_operands(Value* query, Value* key, Value* value) {
    parts_.query = query;
    parts_.key = key;
    parts_.value = value;
  }

  // Whether every sample is known to fill its past, as if all masks were ones.
  bool past_is_full() const {
    const auto last = uniform_element(l_.in(kLengths));
    return last && l_.has(kPastKey) && l_.has(kPastValue) && *last + 1 - fresh_ == l_.in(kPastKey)->shape().at(2);
  }

  // ONNX's own form: new keys follow all past ones.
  Values append() {
    const Expr past = l_.in(kPastKey)->shape().at(2);
    Value* range = b_.emit("Range", {b_.scalar(DType::int64, past), b_.scalar(DType::int64, past + fresh_),
                                     b_.graph.constant_scalar(DType::int64, 1)});
    places_ = b_.expand(b_.reshape(range, {1, fresh_}), {batch_, fresh_});
    rotate();
    parts_.past_key = l_.in(kPastKey);
    parts_.past_value = l_.in(kPastValue);
    parts_.causal = true;
    parts_.mask = l_.node.get_int("local_window_size", -1) > 0 ? seen(past + fresh_) : l_.in(kScores);
    return attend(l_, parts_);
  }

  // Where each sample's new tokens begin, [batch, 1], and each token's place, [batch, new tokens].
  void place() {
    Value* count = b_.reshape(b_.cast(l_.in(kLengths), DType::int64), {batch_, 1});
    Value* before = b_.add(b_.sub(count, b_.scalar(DType::int64, fresh_)), 1);
    first_ = b_.emit("Max", {before, b_.graph.constant_scalar(DType::int64, 0)});
    places_ = b_.add(first_, b_.reshape(b_.range(fresh_), {1, fresh_}));
  }

  void rotate() {
    if (l_.node.get_int("do_rotary", 0) == 0) return;
    if (!l_.has(kCosines) || !l_.has(kSines)) fail_node(l_.node, "do_rotary needs cos_cache and sin_cache");
    Value* places = l_.has(kPlaces) ? l_.in(kPlaces) : places_;
    const int64_t interleaved = l_.node.get_int("rotary_interleaved", 0);
    const auto width = l_.in(kCosines)->shape().at(1).constant();
    const auto head = Expr::exact_divide(parts_.query->shape().at(2), Expr(heads_));
    const bool whole = width && head && head->is(2 * *width);
    const auto turned = [&](Value* x, int64_t heads) {
      return rotated(l_, x, l_.in(kCosines), l_.in(kSines), places, heads, interleaved,
                     whole || !width ? 0 : 2 * *width);
    };
    parts_.query = turned(parts_.query, heads_);
    parts_.key = turned(parts_.key, kv_heads_);
  }

  // [batch, heads, room + new tokens, width]; the new ones follow the sample's own.
  Value* with_past(Value* x, size_t past) {
    const auto width = Expr::exact_divide(x->shape().at(2), Expr(kv_heads_));
    if (!width) fail_node(l_.node, "its keys or values do not divide into {} heads", kv_heads_);
    Value* split = b_.reshape(x, {batch_, fresh_, Expr(kv_heads_), *width});
    if (!l_.has(past)) return b_.transpose(split, {0, 2, 1, 3});
    const Shape room = l_.in(past)->shape();
    Value* longer = b_.emit("Concat", {l_.in(past), b_.zeros(x->dtype(), {room[0], room[1], fresh_, room[3]})},
                            {attribute("axis", int64_t{2})});
    Value* sample = b_.expand(b_.reshape(b_.range(batch_), {batch_, 1}), {batch_, fresh_});
    const Shape column = {batch_, fresh_, 1};
    Value* indices =
        b_.emit("Concat", {b_.reshape(sample, column), b_.reshape(places_, column)}, {attribute("axis", int64_t{2})});
    Value* written = b_.emit("ScatterND", {b_.transpose(longer, {0, 2, 1, 3}), indices, split});
    return b_.transpose(written, {0, 2, 1, 3});
  }

  Value* packed(Value* x) {
    const Shape shape = x->shape();
    return b_.reshape(b_.transpose(x, {0, 2, 1, 3}), {shape[0], shape[2], shape[1] * shape[3]});
  }

  // Which keys each query may see, none after itself and none before its window; with the scores' bias.
  Value* seen(const Expr& keys) {
    Value* key = b_.reshape(b_.range(keys), {1, 1, 1, keys});
    Value* query = b_.reshape(places_, {batch_, 1, fresh_, 1});
    Value* allowed = b_.emit("LessOrEqual", {key, query});
    if (const int64_t window = l_.node.get_int("local_window_size", -1); window > 0) {
      Value* near = b_.emit("Greater", {key, b_.sub(query, b_.number(query, static_cast<double>(window)))});
      allowed = b_.emit("And", {allowed, near});
    }
    if (!l_.has(kScores)) return allowed;
    return b_.where(allowed, l_.in(kScores), -std::numeric_limits<double>::infinity());
  }

  Lowerer& l_;
  ops::NodeBuilder& b_;
  int64_t heads_, kv_heads_;
  AttentionParts parts_{};
  Expr batch_, fresh_;
  Value *first_ = nullptr, *places_ = nullptr;
};

Values group_query_attention(Lowerer& l) {
  return GroupQueryAttention(l).run();
}

}  // namespace

std::vector<Lowering> microsoft_lowerings() {
  std::vector<Lowering> rows = {
      {"EmbedLayerNormalization", 1, embed_layer_norm},
      {"QEmbedLayerNormalization", 1, quantized_embed_layer_norm},
      {"RotaryEmbedding", 4, rotary},
      {"FusedMatMul", 2, fused_matmul},
      {"MultiHeadAttention", 1, multi_head_attention},
      {"Attention", 2, attention_of_one_input},
      {"QAttention", 5, quantized_attention},
      {"GroupQueryAttention", 1, group_query_attention},
  };
  for (Lowering& row : rows) row.domain = kDomain;
  return rows;
}

}  // namespace tessera::rewrite
