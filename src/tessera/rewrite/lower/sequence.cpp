#include "tessera/base/error.h"
#include "tessera/ops/library/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lower.h"

namespace tessera::rewrite {
namespace {

using ops::fail_node;
using ops::shape_of;
using Values = std::vector<Value*>;

// A convolution with a window of k for each channel over the last k - 1 positions before x [batch, channels, length],
// or zeros, and x. The last k - 1 positions are returned for the next call.
Values causal_convolution(Lowerer& l) {
  const Shape &x = shape_of(l.node, 0), &weight = shape_of(l.node, 1);
  if (x.size() != 3 || weight.size() != 3)
    fail_node(l.node, "its input {} and weight {} must be [batch, channels, length] and [channels, 1, width]",
              to_string(x), to_string(weight));
  const auto channels = x[1].constant();
  if (!channels) fail_node(l.node, "the number of its channels, {}, must be a number", x[1].str());
  const Expr kept = weight[2] - 1;
  Value* before = l.has(3) ? l.in(3) : l.b.zeros(l.in(0)->dtype(), {x[0], x[1], kept});
  Value* all = l.b.emit("Concat", {before, l.in(0)}, {attribute("axis", int64_t{2})});
  Values operands = {all, l.in(1)};
  if (l.has(2)) operands.push_back(l.in(2));
  Value* y = l.b.emit("Conv", operands, {attribute("group", *channels)});
  const std::string activation = l.node.get_string("activation", "none");
  if (activation == "silu" || activation == "swish")
    y = l.b.emit("Swish", {y});
  else if (activation != "none")
    fail_node(l.node, "its activation '{}' must be none, silu or swish", activation);
  return {y, l.wants(1) ? l.b.slice(all, 2, x[2], x[2] + kept) : nullptr};
}

/// The recurrence of a linear attention, as a Scan over its tokens.
class LinearAttention {
 public:
  explicit LinearAttention(Lowerer& l)
      : l_(l), rule_(l.node.get_string("update_rule", "gated_delta")), dtype_(l.in(0)->dtype()) {
    if (rule_ != "linear" && rule_ != "gated" && rule_ != "delta" && rule_ != "gated_delta")
      fail_node(l.node, "its update_rule '{}' must be linear, gated, delta or gated_delta", rule_);
    heads_ = l.node.get_int("q_num_heads", 0);
    kv_heads_ = l.node.get_int("kv_num_heads", 0);
    if (heads_ < 1 || kv_heads_ < 1 || heads_ % kv_heads_ != 0)
      fail_node(l.node, "{} query heads cannot share {} key and value heads evenly", heads_, kv_heads_);
    computed_in_ = bits_of(dtype_) < 32 ? DType::float32 : dtype_;
  }

  Values run() {
    const Shape &q = shape_of(l_.node, 0), &k = shape_of(l_.node, 1), &v = shape_of(l_.node, 2);
    batch_ = q.at(0);
    tokens_ = q.at(1);
    const Expr key = width(k.at(2), kv_heads_), value = width(v.at(2), kv_heads_);
    const bool gated = rule_.starts_with("gated"), delta = rule_.ends_with("delta");
    if (gated && !l_.has(4)) fail_node(l_.node, "the rule {} needs the operand decay", rule_);
    if (delta && !l_.has(5)) fail_node(l_.node, "the rule {} needs the operand beta", rule_);
    Values operands = {l_.has(3) ? l_.b.cast(l_.in(3), computed_in_)
                                 : l_.b.zeros(computed_in_, {batch_, Expr(kv_heads_), key, value})};
    operands.push_back(tokens_first(l_.in(0), heads_));
    operands.push_back(tokens_first(l_.in(1), kv_heads_));
    operands.push_back(tokens_first(l_.in(2), kv_heads_));
    if (gated) operands.push_back(tokens_first(l_.in(4), kv_heads_));
    if (delta) operands.push_back(tokens_first(l_.in(5), kv_heads_));
    auto body = std::make_unique<Graph>();
    body->name = "token";
    Values items;
    for (size_t i = 0; i < operands.size(); ++i) {
      Shape shape = operands[i]->shape();
      if (i > 0) shape.erase(shape.begin());
      items.push_back(body->add_input(fmt::format("item.{}", i), {computed_in_, shape}));
    }
    ops::NodeBuilder b(*body, "token");
    Value* state = items[0];
    size_t next = 4;
    Value* decay = gated ? b.emit("Exp", {items[next++]}) : nullptr;
    Value* beta = delta ? items[next] : nullptr;
    const auto column = [&](Value* x) { return b.emit("Unsqueeze", {x, body->constant_int64({-1})}); };
    const auto row = [&](Value* x) { return b.emit("Unsqueeze", {x, body->constant_int64({-2})}); };
    if (decay) state = b.mul(column(decay), state);
    Value* written = items[3];
    if (delta) {
      Value* read = b.emit("MatMul", {row(items[2]), state});
      written = b.mul(b.sub(written, b.emit("Squeeze", {read, body->constant_int64({-2})})), beta);
    }
    state = b.add(state, b.emit("MatMul", {column(items[2]), row(written)}));
    // Query heads that share a state are rows of one product.
    Value* grouped = b.reshape(items[1], {batch_, Expr(kv_heads_), Expr(heads_ / kv_heads_), key});
    float scale = l_.node.get_float("scale", 0);
    Value* factor =
        scale == 0 ? b.div(b.number(state, 1), b.unary("Sqrt", b.scalar(computed_in_, key))) : b.number(state, scale);
    Value* out = b.emit("MatMul", {b.mul(grouped, factor), state});
    body->outputs = {b.emit("Identity", {state}), out};
    Node* scan = l_.b.graph.add_node("Scan", operands, {"", ""}, "", &l_.node);
    scan->name = l_.node.name;
    scan->set("num_scan_inputs", static_cast<int64_t>(operands.size()) - 1);
    scan->set("body", Region(std::move(body)));
    const Shape rows = {tokens_, batch_, Expr(kv_heads_), Expr(heads_ / kv_heads_), value};
    scan->outputs[0]->type = {computed_in_, operands[0]->shape()};
    scan->outputs[1]->type = {computed_in_, rows};
    Node* last = l_.b.emit("Identity", {scan->outputs[0]})->producer;
    Node* all = l_.b.emit("Identity", {scan->outputs[1]})->producer;
    l_.open(scan);
    Value* y = l_.b.transpose(all->outputs[0], {1, 0, 2, 3, 4});
    y = l_.b.reshape(y, {batch_, tokens_, Expr(heads_) * value});
    return {l_.b.cast(y, dtype_), l_.wants(1) ? l_.b.cast(last->outputs[0], present_type()) : nullptr};
  }

 private:
  DType present_type() const { return l_.has(3) ? l_.in(3)->dtype() : dtype_; }

  Expr width(const Expr& all, int64_t heads) const {
    const auto each = Expr::exact_divide(all, Expr(heads));
    if (!each) fail_node(l_.node, "{} elements do not divide into {} heads", all.str(), heads);
    return *each;
  }

  // [batch, tokens, heads · width] as [tokens, batch, heads, width]; one number per head, or one for all, keeps
  // width 1.
  Value* tokens_first(Value* x, int64_t heads) {
    const Expr all = x->shape().at(2);
    if (all.is(1)) heads = 1;
    Value* split = l_.b.reshape(l_.b.cast(x, computed_in_), {batch_, tokens_, Expr(heads), width(all, heads)});
    return l_.b.transpose(split, {1, 0, 2, 3});
  }

  Lowerer& l_;
  std::string rule_;
  DType dtype_, computed_in_ = DType::float32;
  int64_t heads_ = 0, kv_heads_ = 0;
  Expr batch_, tokens_;
};

Values linear_attention(Lowerer& l) {
  return LinearAttention(l).run();
}

std::vector<int64_t> front(size_t rank, const std::vector<int64_t>& first) {
  std::vector<int64_t> order = first;
  for (size_t d = 0; d < rank; ++d)
    if (std::find(first.begin(), first.end(), static_cast<int64_t>(d)) == first.end())
      order.push_back(static_cast<int64_t>(d));
  return order;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> back(order.size());
  for (size_t d = 0; d < order.size(); ++d) back[static_cast<size_t>(order[d])] = static_cast<int64_t>(d);
  return back;
}

// Reverses the first elements of each sequence of a batch.
Values reverse_sequence(Lowerer& l) {
  const size_t rank = l.in(0)->rank();
  const auto at = [&](const char* name, int64_t otherwise) {
    return static_cast<int64_t>(ops::normalize_axis(l.node, l.node.get_int(name, otherwise), rank, name));
  };
  const int64_t batch = at("batch_axis", 1), time = at("time_axis", 0);
  if (batch == time) fail_node(l.node, "its batch_axis and its time_axis are both {}", batch);
  const auto order = front(rank, {batch, time});
  return {l.b.transpose(turned_rows(l.b, l.b.transpose(l.in(0), order), l.in(1)), inverse(order))};
}

}  // namespace

Value* turned_rows(ops::NodeBuilder& b, Value* x, Value* lengths) {
  const Expr n = x->shape().at(0), t = x->shape().at(1);
  lengths = b.cast(b.reshape(lengths, {n, 1}), DType::int64);
  Value* place = b.reshape(b.range(t), {1, t});
  Value* turned = b.sub(b.sub(lengths, b.number(lengths, 1)), place);
  Value* from = b.where(b.emit("Less", {place, lengths}), turned, place);
  return b.emit("GatherND", {x, b.reshape(from, {n, t, 1})}, {attribute("batch_dims", int64_t{1})});
}

std::vector<Lowering> sequence_lowerings() {
  return {
      {"CausalConvWithState", 2, causal_convolution},
      {"LinearAttention", 3, linear_attention},
      {"ReverseSequence", 2, reverse_sequence},
  };
}

}  // namespace tessera::rewrite
