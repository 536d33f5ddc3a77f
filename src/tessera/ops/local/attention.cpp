#include "tessera/ops/attention.h"

#include <limits>

#include "tessera/ops/examples/examples.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/require.h"

namespace tessera::ops {
namespace {

constexpr std::string_view kShardDomain = "tessera";
constexpr double kUnseen = -std::numeric_limits<double>::infinity();

// Whether the node has a part of the keys only.
bool is_of_part(const Node& node) {
  return node.output(kRowMost) != nullptr;
}

void infer_attention_shard(Node& node) {
  const AttentionDims dims = attention_dims(node);
  const DType dtype = require_same_dtype(node, {kQuery, kKey});
  require_mask(node, dims);
  require_sinks(node, dims);
  place_of(node);
  set_attention_results(node, dims, is_of_part(node) ? DType::float32 : dtype);
  for (size_t rows : {kRowMost, kRowSums})
    set_result(node, rows, DType::float32, {dims.batch, dims.heads, dims.queries, 1});
}

// Only batches pass.
Rule attention_shard_rule(const Node& node) {
  const AttentionDims dims = attention_dims(node);
  Rule rule = blank_rule(node);
  const DimFactors b{rule.add("b", dims.batch)};
  for (size_t i = 0; i < kPlace; ++i)
    if (node.input(i) && i != kMask) rule.operands[i][0] = b;
  if (has_operand(node, kMask))
    rule.operands[kMask] = broadcast_dims(node.input(kMask)->shape(), dims.scores(), {b, {}, {}, {}});
  for (size_t r = 0; r < node.outputs.size(); ++r)
    if (node.outputs[r]) rule.results[r][0] = b;
  return rule;
}

class AttentionShardBody {
 public:
  AttentionShardBody(NodeBuilder& b, const Node& node, AttentionPlace place)
      : b_(b), node_(node), dims_(attention_dims(node)), place_(std::move(place)) {}

  std::vector<Value*> run() {
    Value* q = with_heads_apart(b_, node_.input(kQuery), dims_.heads);
    Value* k = all_of(kKey, kPastKey);
    Value* v = all_of(kValue, kPastValue);
    const std::vector<Value*> present = {as_result(kPresentKey, k), as_result(kPresentValue, v)};
    const bool spelt_out = is_of_part(node_) || has_operand(node_, kSink);
    const bool grouped = place_.first_head.is(0) && dims_.heads == dims_.kv_heads * place_.heads_per_key && !spelt_out;
    if (!grouped && !(place_.first_head.is(0) && dims_.heads == dims_.kv_heads)) {
      k = per_query_head(k);
      v = per_query_head(v);
    }
    std::vector<Value*> results = is_of_part(node_) ? part(q, k, v) : spelt_out ? sunk(q, k, v) : whole(q, k, v);
    results.insert(results.begin() + 1, present.begin(), present.end());
    return results;
  }

 private:
  // The past keys or values and the new ones.
  Value* all_of(size_t fresh, size_t past) {
    Value* all = with_heads_apart(b_, node_.input(fresh), dims_.kv_heads);
    return node_.input(past) ? b_.emit("Concat", {node_.input(past), all}, {{"axis", int64_t{2}, ""}}) : all;
  }

  // A result must not be an operand.
  Value* as_result(size_t result, Value* value) {
    return node_.output(result) && !value->producer ? b_.unary("Identity", value) : value;
  }

  // The key heads of all query heads.
  Value* per_query_head(Value* heads) {
    Value* number = b_.add(b_.range(dims_.heads), b_.scalar(DType::int64, place_.first_head));
    Value* shared = b_.div(number, b_.scalar(DType::int64, place_.heads_per_key));
    return b_.emit("Gather", {heads, shared}, {{"axis", int64_t{1}, ""}});
  }

  // [batch or 1, 1, queries, keys]: which keys a query sees by their places; null: all.
  Value* seen() {
    const Expr keys = dims_.total();
    Value* key = b_.add(b_.reshape(b_.range(keys), {1, 1, 1, keys}), b_.scalar(DType::int64, place_.first_key));
    Value* query = b_.add(b_.reshape(b_.range(dims_.queries), {1, 1, dims_.queries, 1}),
                          b_.scalar(DType::int64, place_.first_query + dims_.past));
    Value* length = node_.input(kKeyLengths);
    if (length) {
      length = b_.reshape(b_.cast(length, DType::int64), {dims_.batch, 1, 1, 1});
      query = b_.add(query, b_.sub(length, b_.scalar(DType::int64, place_.queries)));
    }
    Value* seen = seen_by_position(b_, node_, key, query);
    return length ? b_.both(seen, b_.emit("Less", {key, length})) : seen;
  }

  // What is added to scores, or says which count; null: nothing.
  Value* mask() { return mask_where_seen(b_, node_.input(kMask), seen(), dims_.total()); }

  std::vector<Value*> whole(Value* q, Value* k, Value* v) {
    std::vector<Attribute> attributes;
    for (const char* name : {"scale", "softcap", "softmax_precision"})
      if (const Attribute* attribute = node_.find_attribute(name)) attributes.push_back(*attribute);
    Value* y = b_.emit("Attention", {q, k, v, mask()}, attributes);
    return {with_heads_together(b_, y, node_.output(kOutput)), nullptr, nullptr};
  }

  std::vector<Value*> part(Value* q, Value* k, Value* v) {
    const AttentionPart rows = rows_of(q, k, v);
    return {with_heads_together(b_, rows.mean, node_.output(kOutput)), rows.most, rows.sums};
  }

  // A sink is like one key more, whose value is zero.
  std::vector<Value*> sunk(Value* q, Value* k, Value* v) {
    const AttentionPart rows = rows_of(q, k, v);
    Value* sink = b_.reshape(b_.cast(node_.input(kSink), DType::float32), {1, dims_.heads, 1, 1});
    Value* y = joined(b_, rows, {b_.number(sink, 0), sink, b_.number(sink, 1)}).mean;
    const Value* like = node_.output(kOutput);
    return {with_heads_together(b_, b_.cast(y, like->dtype()), like), nullptr, nullptr};
  }

  AttentionPart rows_of(Value* q, Value* k, Value* v) {
    const auto wide = [&](Value* value) { return b_.cast(value, DType::float32); };
    Value* scores = b_.emit("MatMul", {b_.mul(wide(q), attention_scale(node_, dims_.width)), b_.turn(wide(k))});
    if (const double cap = node_.get_float("softcap", 0); cap > 0)
      scores = b_.mul(b_.unary("Tanh", b_.mul(scores, 1 / cap)), cap);
    if (Value* masked = mask())
      scores = masked->dtype() == DType::boolean ? b_.where(masked, scores, kUnseen) : b_.add(scores, wide(masked));
    Value* most = b_.emit("ReduceMax", {scores, b_.graph.constant_int64({-1})});
    Value* none = b_.emit("Equal", {most, b_.number(most, kUnseen)});
    Value* weights = b_.unary("Exp", b_.sub(scores, b_.where(none, b_.number(most, 0), most)));
    Value* sums = b_.sum(weights, {3});
    Value* empty = b_.emit("Equal", {sums, b_.number(sums, 0)});
    Value* y = b_.div(b_.emit("MatMul", {weights, wide(v)}), b_.where(empty, b_.number(sums, 1), sums));
    return {y, most, sums};
  }

  NodeBuilder& b_;
  const Node& node_;
  const AttentionDims dims_;
  const AttentionPlace place_;
};

std::vector<Value*> attention_shard_body(NodeBuilder& b, const Node& node) {
  return AttentionShardBody(b, node, place_of(node)).run();
}

// The result of all keys, to which this rank's part is added: its own mean by its share of all weights.
Value* share_of_rows(Localizer& local, const std::vector<Value*>& part, int keys) {
  const TensorType rows = part[kRowMost]->type, wide = part[kOutput]->type, flag{DType::boolean, rows.shape};
  Value* zero = local.graph.constant_scalar(DType::float32, 0);
  Value* one = local.graph.constant_scalar(DType::float32, 1);
  const auto where = [&](Value* a, Value* b, Value* if_equal, Value* other) {
    return local.emit("Where", {local.emit("Equal", {a, b}, flag), if_equal, other}, rows);
  };
  // What is stated to be partial is read by its reduction only.
  const auto reduced = [&](Value* own, Reduction reduction, std::string_view name) {
    return local.reduce(local.emit("Identity", {own}, rows), {keys}, reduction, name);
  };
  Value* most = reduced(part[kRowMost], Reduction::max, "most");
  Value* below = local.emit("Exp", {local.emit("Sub", {part[kRowMost], most}, rows)}, rows);
  // The same infinity twice differs by 0, not by NaN: a row that sees no key, or one with an infinite score.
  Value* factor = where(part[kRowMost], most, one, below);
  Value* weight = local.emit("Mul", {part[kRowSums], factor}, rows);
  Value* all = reduced(weight, Reduction::sum, "sums");
  Value* share = local.emit("Div", {weight, where(all, zero, one, all)}, rows);
  return local.emit("Mul", {part[kOutput], share}, wide);
}

// Gives this rank's operands the keys that its queries see, and the mask those columns; the place of the first one.
Expr fetch_keys(Localizer& local, const AttentionDims& dims) {
  const size_t along = dims.packed ? 1 : 2;
  const Localizer::Widened keys = local.widen(local.inputs[kKey], kKey, along, nullptr);
  local.inputs[kKey] = keys.value;
  local.inputs[kValue] = local.widen(local.inputs[kValue], kValue, along, nullptr).value;
  const Expr first = max(0, keys.begin + keys.before);  // a rank without queries sees none
  if (has_operand(local.node, kMask)) {
    NodeBuilder b(local.graph, local.node.outputs[0]->name + ".mask");
    Value*& mask = local.inputs[kMask];
    mask = b.slice(mask, static_cast<int64_t>(mask->rank()) - 1, first, first + keys.value->shape()[along]);
  }
  return first;
}

}  // namespace

AttentionPlace place_of(const Node& node) {
  const std::vector<Expr> place = content_operand(node, kPlace, "the place of its part");
  if (std::ssize(place) != AttentionPlace::count)
    fail_node(node, "its place has {} numbers; it must have {}", place.size(), AttentionPlace::count);
  return {place[0], place[1], place[2], place[3], place[4]};
}

AttentionPart joined(NodeBuilder& b, const AttentionPart& one, const AttentionPart& other) {
  Value* most = b.emit("Max", {one.most, other.most});
  // The same infinity twice differs by 0, not by NaN: a row that sees no key, or one with an infinite score.
  const auto weight = [&](const AttentionPart& part) {
    Value* below = b.unary("Exp", b.sub(part.most, most));
    return b.mul(part.sums, b.where(b.emit("Equal", {part.most, most}), b.number(most, 1), below));
  };
  Value *first = weight(one), *second = weight(other), *sums = b.add(first, second);
  Value* all = b.where(b.emit("Equal", {sums, b.number(sums, 0)}), b.number(sums, 1), sums);
  Value* mean = b.add(b.mul(one.mean, b.div(first, all)), b.mul(other.mean, b.div(second, all)));
  return {mean, most, sums};
}

std::vector<Value*> attention_body(NodeBuilder& b, const Node& node) {
  if (!has_windows(node) && !has_operand(node, kSink)) return {};
  const AttentionDims dims = attention_dims(node);
  std::vector<Value*> results = AttentionShardBody(b, node, {0, dims.queries, 0, 0, heads_per_key(node, dims)}).run();
  results.resize(node.outputs.size());
  return results;
}

std::vector<Value*> localize_attention(Localizer& local) {
  const Node& node = local.node;
  const AttentionDims dims = attention_dims(node);
  const auto is_split = [&](std::string_view name) {
    const int factor = local.factor(name);
    return factor >= 0 && local.split[factor];
  };
  const auto offset = [&](std::string_view name) {
    return is_split(name) ? local.offsets[local.factor(name)] : Expr(0);
  };
  const bool of_part = is_split("t");
  const bool of_queries = is_split("s") && is_positional(node);
  const bool in_windows = has_windows(node);
  const Expr first_key = local.is_split_halo(kKey, dims.packed ? 1 : 2) ? fetch_keys(local, dims) : offset("t");
  if (!of_part && !of_queries && !in_windows && !is_split("h") && !has_operand(node, kSink)) return local.same();
  // Where heads are split in groups, a rank has some of the query heads of each of its key heads.
  const int group = local.factor("g");
  const Expr heads_per_key = group >= 0                ? local.extents[group]
                             : local.factor("kv") >= 0 ? Expr(1)
                                                       : ops::heads_per_key(node, dims);
  std::vector<Value*> operands = local.inputs;
  operands.resize(kPlace);
  operands.push_back(local.graph.add_expression(node.outputs[0]->name + ".place",
                                                {offset("s"), dims.queries, first_key, offset("h"), heads_per_key}));
  if (has_operand(node, kSink)) operands.push_back(local.inputs[kSink]);
  auto shard = std::make_unique<Node>(node);
  shard->op_type = "AttentionShard";
  shard->domain = kShardDomain;
  shard->inputs = std::move(operands);
  shard->extra.clear();
  const auto result = [&](size_t r, const std::string& name, TensorType type) {
    shard->outputs[r] = local.graph.add_value(name, ValueKind::result, std::move(type));
  };
  shard->outputs.assign(of_part ? kRowSums + 1 : node.outputs.size(), nullptr);
  for (size_t r = 0; r < node.outputs.size(); ++r)
    if (node.outputs[r]) result(r, node.outputs[r]->name, local.outputs[r]);
  if (of_part) {
    shard->outputs[kOutput]->type.dtype = DType::float32;
    Shape rows = *local.outputs[0].shape;
    rows.back() = 1;
    for (size_t r : {kRowMost, kRowSums}) result(r, node.outputs[0]->name + ".rows", {DType::float32, rows});
  }
  std::vector<Value*> results = local.graph.adopt_node(std::move(shard))->outputs;
  if (!of_part) return results;
  Value* y = share_of_rows(local, results, local.factor("t"));
  const DType dtype = local.outputs[0].dtype;
  if (dtype != y->dtype()) y = local.emit("Cast", {y}, local.outputs[0], {{"to", static_cast<int64_t>(dtype)}});
  results.resize(node.outputs.size());
  results[kOutput] = y;
  return results;
}

OpDef attention_shard_op() {
  return {.type = "AttentionShard",
          .domain = kShardDomain,
          .infer = infer_attention_shard,
          .rule = attention_shard_rule,
          .flops = attention_flops,
          .no_gradient = kMadeByPartitioner,
          .body = attention_shard_body,
          .values = {kPlace},
          .made_of = {{}, {kPastKey, kKey}, {kPastValue, kValue}, {}, {}},
          .examples = attention_shard_examples};
}

}  // namespace tessera::ops
