#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/generate/bind_decoder.h"
#include "tessera/generate/held_decoder.h"
#include "tessera/generate/later_keys.h"
#include "tessera/generate/longer_mask.h"
#include "tessera/generate/run_positions.h"
#include "tessera/generate/token_meetings.h"
#include "tessera/generate/windowed_caches.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/node_builder.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/rewrite/raise/affine.h"
#include "tessera/rewrite/raise/attention_heads.h"

//   present = Concat(past, key)                      cache' = TensorScatter(cache, key, held)
//   y = Attention(query, present, …, j ≤ past + i)   y = Attention <is_causal> (query, cache', …, held + sequence)
// where `past` was an input [batch, heads, past, width] and `cache` is a state [batch, heads, capacity, width]. The
// symbol `past` had two meanings, which part here. As an extent it becomes capacity - sequence, so that past + sequence
// is the capacity. What is counted along that extent, or from its end, would be wrong then: only Attention may combine
// what lies along it. As a number (the start of a Range, the offset of a mask) it is known only at a run: `held`, of
// each text its own. Attention's lengths (nonpad_kv_seqlen) hide keys that lie behind the tokens held.
//
// A model without caches gets one for each key and value of an Attention that sees earlier tokens only; its Ranges from
// 0 to `sequence` are positions, and begin at `held`, but for those of keys in a mask (longer_mask.h). That is right if
// nothing else mixes tokens, which the operators' sharding rules say: a dimension of tokens must pass through every
// other operator.
namespace tessera::generate {
namespace {

template <typename Expressions>
bool mention(const Expressions& expressions, const std::string& symbol) {
  return std::any_of(expressions.begin(), expressions.end(),
                     [&](const Expr& expression) { return mentions(expression, symbol); });
}

class CacheHolder {
 public:
  /// `by_rows`: positions are made for each text, instead of once for all.
  CacheHolder(OnnxModel model, const DecoderPorts& ports, int64_t batch, int64_t capacity, bool by_rows)
      : ports_(ports), batch_(batch), capacity_(capacity), by_rows_(by_rows) {
    held_.model = std::move(model);
    held_.given = ports.caches.empty();
    held_.ragged = by_rows || batch == 1;
  }

  HeldDecoder run() {
    std::tie(sequence_, past_) = bind_decoder(graph(), ports_, batch_);
    // Now it is known which branch is taken, and a mask that hides no token vanishes, or leaves is_causal.
    rewrite::rewrite_model(held_.model);
    if (!held_.given) keep_all_tokens(graph(), ports_, past_);
    add_inputs();
    if (held_.given)
      give_caches();
    else
      take_caches();
    place_tokens();
    require_extents();
    if (held_.given)
      require_tokens_apart();
    else
      set_past();
    take_last();
    graph().outputs = {logits()};
    graph().erase_dead();
    ops::infer_types(graph());
    graph().verify("hold_caches");
    return std::move(held_);
  }

 private:
  Graph& graph() { return *held_.model.graph; }
  Value* find(const std::string& name) {
    Value* value = graph().find(name);
    if (!value) fail("generate", "the model has no tensor '{}'", name);
    return value;
  }
  Value* logits() { return find(ports_.logits); }
  ops::NodeBuilder at_front() {
    return {graph(), "generate", graph().nodes().empty() ? nullptr : graph().nodes().front().get()};
  }

  void add_inputs() {
    held_tokens_ = graph().add_input(kHeld, {DType::int64, Shape{batch_}});
    last_ = graph().add_input(kLast, {DType::int64, Shape{batch_}});
    ops::NodeBuilder b = at_front();
    lengths_ = b.add(held_tokens_, b.scalar(DType::int64, Expr::symbol(sequence_)));
    positions_.emplace(graph(), batch_, sequence_, held_tokens_);
  }

  /// The state that holds the keys or values `fresh` [batch, heads, sequence, width], with these behind those held.
  Value* hold(Value* fresh, const std::string& name, const Node* before) {
    Shape shape = fresh->shape();
    shape.at(2) = capacity_;
    const auto dims = constants_of(shape);
    if (!dims)
      fail("generate", "the keys or values '{}' are {}; all but their sequence must be numbers", fresh->name,
           to_string(shape));
    Value* state = graph().add_state(name, Tensor::zeros(fresh->dtype(), *dims));
    state->type = {fresh->dtype(), shape};
    Value* next = rewrite::emit(graph(), "TensorScatter", {state, fresh, held_tokens_}, before,
                                {rewrite::attribute("axis", int64_t{2})}, "next." + name);
    graph().set_next(state, next);
    held_.caches.push_back(name);
    return next;
  }

  // --- A model with caches

  void take_caches() {
    for (Node* node : rewrite::nodes_of(graph()))
      if (node->is("Attention") && node->input(ops::kPastKey)) rewrite::with_heads_apart(graph(), node);
    const rewrite::AffineAnalysis analysis(graph());
    const LaterKeys later(analysis, Expr::symbol(past_));
    std::set<const Node*> causal;
    for (const auto& node : graph().nodes())
      if (node->is("Attention") && node->input(ops::kMask) && later.alone_hidden_by(node->input(ops::kMask)))
        causal.insert(node.get());
    for (Node* node : rewrite::nodes_of(graph()))
      if (node->is("Attention") && node->input(ops::kPastKey)) join_past(node);
    for (const DecoderPorts::Cache& cache : ports_.caches) take(cache);
    size_t readers = 0;
    for (Node* node : rewrite::nodes_of(graph())) {
      if (!node->is("Attention")) continue;
      if (!reads_cache(node->input(ops::kKey))) {
        if (node->get_int("is_causal", 0) == 0) held_.ragged = batch_ == 1;
        continue;
      }
      if (causal.contains(node)) {
        graph().set_input(node, ops::kMask, nullptr);
        node->set("is_causal", int64_t{1});
      }
      // A mask that we do not know may show a text what fills it up.
      if (node->get_int("is_causal", 0) == 0) held_.ragged = batch_ == 1;
      graph().set_input(node, ops::kKeyLengths, lengths_);
      ++readers;
    }
    if (2 * readers < ports_.caches.size())
      fail("generate", "{} of the {} caches are read by no Attention, so that unused places would be seen",
           ports_.caches.size() - 2 * readers, ports_.caches.size());
  }

  // Attention's own form of a cache, spelt out.
  void join_past(Node* node) {
    for (const auto& [fresh, past, present] :
         {std::tuple(ops::kKey, ops::kPastKey, 1), std::tuple(ops::kValue, ops::kPastValue, 2)}) {
      Value* all = rewrite::emit(graph(), "Concat", {node->inputs[past], node->inputs[fresh]}, node,
                                 {rewrite::attribute("axis", int64_t{2})});
      if (Value* old = node->output(static_cast<size_t>(present));
          old && (!old->uses.empty() || graph().is_output(old))) {
        if (!rewrite::replace(graph(), old, all)) fail("generate", "the output '{}' has two names", old->name);
      }
      graph().set_input(node, fresh, all);
      graph().set_input(node, past, nullptr);
    }
  }

  void take(const DecoderPorts::Cache& cache) {
    Value* past = find(cache.past);
    Node* join = rewrite::made_by(find(cache.present), "Concat");
    if (!join || join->inputs.size() != 2 || join->inputs[0] != past ||
        rewrite::axis_of(*join, "axis", 0, past->rank()) != 2 || past->uses.size() != 1)
      fail("generate", "the output '{}' is not the cache '{}' with tokens appended, or the cache has other readers",
           cache.present, cache.past);
    Value* next = hold(join->inputs[1], cache.past, join);
    next->type = join->outputs[0]->type;  // past + sequence until set_past makes it the capacity
    graph().replace_uses(join->outputs[0], next);
    graph().erase(join);
    graph().erase(past);
    Value* state = next->producer->inputs[0];
    graph().rename(state, cache.past);
    graph().rename(next, "next." + state->name);
    held_.caches.back() = state->name;
  }

  // Heads may be repeated, and types changed, on the way to an Attention.
  static bool reads_cache(const Value* value) {
    for (;;) {
      const Node* maker = value ? value->producer : nullptr;
      if (!maker) return false;
      if (maker->is("TensorScatter")) return true;
      if (ops::moves_of(*maker) == ops::Moves::nothing && !maker->is("Cast") && !maker->is("Expand")) return false;
      value = maker->inputs[0];
    }
  }

  // As an extent, the past is what the capacity leaves beside the run's tokens. That is right where both occur
  // together: what has earlier tokens only, and is joined with new ones later, would have the new ones at its end.
  void set_past() {
    const std::string total = "tessera.total";
    substitute(graph(), past_, Expr::symbol(total) - Expr::symbol(sequence_));
    for (const auto& node : graph().nodes())
      for (const Value* result : node->outputs)
        if (result && result->has_shape())
          for (const Expr& extent : result->shape())
            if (mentions(extent, total) && mentions(extent, sequence_))
              fail("generate", "{} computes '{}' from earlier tokens without the new ones", node->label(),
                   result->name);
    if (const TokenMeeting meeting = where_tokens_meet(graph(), total); meeting.node)
      fail("generate", "{} combines all tokens along dimension {} of '{}', where a cache has unused places",
           meeting.node->label(), meeting.dim, meeting.value->name);
    substitute(graph(), total, capacity_);
    ops::infer_types(graph());
    // Where new tokens meet elsewhere, a text that is filled up would see what fills it.
    if (where_tokens_meet(graph(), sequence_).node) held_.ragged = batch_ == 1;
  }

  // --- A model without caches

  void give_caches() {
    size_t count = 0;
    const Expr sequence = Expr::symbol(sequence_);
    for (Node* node : rewrite::nodes_of(graph())) {
      if (!node->is("Attention")) continue;
      if (node->get_int("is_causal", 0) == 0) fail("generate", "{} sees later tokens", node->label());
      if (Value* mask = node->input(ops::kMask)) {
        Value* longer = longer_mask(graph(), mask, sequence_, capacity_, node);
        if (!longer)
          fail("generate", "{} has a mask that does not depend on the positions of keys alone", node->label());
        graph().set_input(node, ops::kMask, longer);
      }
      const Shape &query = ops::shape_of(*node, ops::kQuery), &key = ops::shape_of(*node, ops::kKey);
      if (query.size() != 4 || node->input(ops::kPastKey) || node->input(ops::kKeyLengths) || query[2] != sequence ||
          key[2] != sequence)
        fail("generate", "{}: queries {} and keys {} do not belong to the same tokens", node->label(), to_string(query),
             to_string(key));
      for (const auto& [operand, what] : {std::pair(ops::kKey, "key"), std::pair(ops::kValue, "value")})
        graph().set_input(node, operand, hold(node->inputs[operand], fmt::format("cache.{}.{}", count, what), node));
      graph().set_input(node, ops::kKeyLengths, lengths_);
      ++count;
    }
    if (count == 0) fail("generate", "the model has no Attention, and so nothing that a cache could hold");
  }

  // Throws unless tokens meet in Attention only.
  void require_tokens_apart() {
    ops::infer_types(graph());
    if (const TokenMeeting meeting = where_tokens_meet(graph(), sequence_); meeting.node)
      fail("generate",
           "{} mixes tokens along dimension {} of '{}', so that new tokens change the keys and values of those before "
           "them",
           meeting.node->label(), meeting.dim, meeting.value->name);
  }

  // --- Positions

  void place_tokens() {
    if (!ports_.positions.empty()) positions_->replace_input(find(ports_.positions), positions_->of_rows());
    if (!ports_.places.empty()) {
      held_.ragged = batch_ == 1;
      positions_->replace_input(find(ports_.places), positions_->of_all());
    }
    positions_->replace_ranges(held_.given ? Expr(0) : Expr::symbol(past_), by_rows_);
  }

  // Throws where the number of tokens before this run, or with it, is more than an extent.
  void require_extents() {
    graph().erase_dead();
    const std::string& symbol = held_.given ? sequence_ : past_;
    for (const auto& value : graph().values()) {
      if (value->kind != ValueKind::expression || !value->content || !mention(*value->content, symbol)) continue;
      for (const Use& use : value->uses) {
        const Node& node = *use.node;
        if (node.is("Reshape") || node.is("Expand") || node.is("ConstantOfShape")) continue;
        if (node.outputs[0] == lengths_ || (node.is("Range") && positions_->made(node.outputs[0]))) continue;
        const bool ends =
            !held_.given && ((node.is("Range") && use.index == 1) || (node.is("Slice") && use.index == 2));
        if (!ends)
          fail("generate", "{} computes with the number of tokens, {}", node.label(),
               held_.given ? "so that each new token changes the keys and values of those before it (as frequencies "
                             "that depend on the length do, dynamic NTK's)"
                           : "which the extents of caches with spare room do not give");
      }
    }
  }

  // --- Logits

  // Only those of one token are made, if they are a product with a weight.
  void take_last() {
    Value* made = logits();
    Node* product = made->producer;
    const bool is_product = product && (product->is("MatMul") || product->is("MatMulNBits", "com.microsoft") ||
                                        product->is("MatMulBlocks", "tessera"));
    const bool by_weight = is_product && product->inputs[1]->has_data() && product->inputs[0]->rank() == 3;
    Value* all = by_weight ? product->inputs[0] : made;
    if (all->rank() != 3 || !mentions(all->shape()[1], sequence_))
      fail("generate", "the logits '{}' are {}; they must be [batch, sequence, vocabulary]", made->name,
           to_string(made->shape()));
    const Shape shape = all->shape();
    ops::NodeBuilder b(graph(), "generate", by_weight ? product : nullptr);
    Value* row =
        b.emit("GatherND", {all, b.reshape(last_, {batch_, 1})}, {rewrite::attribute("batch_dims", int64_t{1})});
    Value* one = b.reshape(row, {batch_, 1, shape[2]});
    if (by_weight) {
      graph().set_input(product, 0, one);
      return;
    }
    const std::string name = made->name;
    graph().rename(made, name + ".all");
    graph().rename(one, name);
  }

  const DecoderPorts& ports_;
  int64_t batch_, capacity_;
  bool by_rows_;
  HeldDecoder held_;
  std::string sequence_, past_;
  Value *held_tokens_ = nullptr, *last_ = nullptr;
  Value* lengths_ = nullptr;  // [batch]: tokens held after this run
  std::optional<RunPositions> positions_;
};

}  // namespace

HeldDecoder hold_caches(const OnnxModel& model, const DecoderPorts& ports, int64_t batch, int64_t capacity) {
  if (batch > 1) {
    try {
      return CacheHolder(model.clone(), ports, batch, capacity, true).run();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::user) throw;  // positions cannot be made for each text, or nothing can
    }
  }
  return CacheHolder(model.clone(), ports, batch, capacity, false).run();
}

}  // namespace tessera::generate
