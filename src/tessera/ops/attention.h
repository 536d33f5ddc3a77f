#pragma once

#include "tessera/ir/attention_window.h"
#include "tessera/ops/library/node_builder.h"
#include "tessera/ops/op.h"

/// What the operators of attention share.
///
/// Attention has an operand more than ONNX's, kSink, the logits [heads] of something that takes its share of each row's
/// softmax and adds nothing to the row: Y = Σ exp(score) · V / (Σ exp(score) + exp(sink)). Programs hold AttentionShard
/// in its place, or, for other tools, the body.
///
/// An operator of our own domain computes a part of an Attention:
///
///   AttentionShard (Q, K, V, attn_mask?, past_key?, past_value?, nonpad_kv_seqlen?, place, sink?)
///     → Y, present_key, present_value, most?, sums?
///
/// Operands, results and attributes are Attention's, of which Q holds some of the queries and heads, K and V some of
/// the keys and values. `place` (int64 [5], known before a run) says which: see AttentionPlace. With the last two
/// results, float32 [batch, heads, queries, 1], other keys are elsewhere: `most` is each row's largest score, -inf if
/// it sees no key here; `sums` the sum of exp(score - most); and Y, then float32, the mean of the values under these
/// weights. Parts 1 and 2 of a row's keys make the row
///
///   M = max(most₁, most₂)   wᵢ = sumsᵢ · exp(mostᵢ - M)   Y = (w₁ · Y₁ + w₂ · Y₂) / (w₁ + w₂)
///
/// (Milakov and Gimelshein 2018), and zeros if both weights are 0.
namespace tessera::ops {

enum AttentionOperand : size_t { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kKeyLengths, kPlace, kSink };
enum AttentionResult : size_t { kOutput, kPresentKey, kPresentValue, kScores, kRowMost = 3, kRowSums };

/// The elements of AttentionShard's operand `place`, in their order.
struct AttentionPlace {
  Expr first_query;    ///< the place of the first query here among all queries
  Expr queries;        ///< how many queries there are in all
  Expr first_key;      ///< the place of the first key here among all keys
  Expr first_head;     ///< of the query heads that begin with the first key head's: the number of the first one here
  Expr heads_per_key;  ///< how many query heads share a key head

  static constexpr int64_t count = 5;
};

/// What AttentionShard gives of a row's keys, or of some of them: see above.
struct AttentionPart {
  Value *mean = nullptr, *most = nullptr, *sums = nullptr;
};

/// An Attention's extents: queries [batch, heads, queries, width], keys [batch, kv_heads, keys, width], values
/// [batch, kv_heads, keys, value_width]; in the 3-D form [batch, queries, heads·width], and so on.
struct AttentionDims {
  Expr batch, heads, kv_heads, queries, keys, past, width, value_width;
  bool packed = false;  ///< the 3-D form

  Expr total() const { return past + keys; }
  Shape scores() const { return {batch, heads, queries, total()}; }
};

/// The width of each of `heads` that divide `hidden` elements; a user error that names the node if they do not.
Expr per_head(const Node& node, const Expr& hidden, const Expr& heads, std::string_view what);
/// A user error that names the node if its operands do not fit together.
AttentionDims attention_dims(const Node& node);
/// How many query heads share each key and value head; a user error if they cannot share them evenly.
Expr heads_per_key(const Node& node, const AttentionDims& dims);
/// A user error if the node has a mask that does not broadcast to the scores. It may cover fewer keys than there are;
/// the rest is masked out.
void require_mask(const Node& node, const AttentionDims& dims);
/// Whether the node has no mask, or one with an element for each key.
bool mask_has_all_keys(const Node& node, const AttentionDims& dims);
/// A user error if the node has sinks, but not one for each head, or with results that have none: scores, or rows of a
/// part of the keys.
void require_sinks(const Node& node, const AttentionDims& dims);
/// The types of the results that Attention and AttentionShard share.
void set_attention_results(Node& node, const AttentionDims& dims, DType output);
/// Whether a query sees only keys within some distance of its own place.
bool has_windows(const Node& node);
/// Whether the keys that a query sees depend on its position among all queries.
bool is_positional(const Node& node);
/// Whether a query sees keys of its own neighbourhood only: keys stand where queries do, and windows bound them on
/// either side. Then a rank that has some queries fetches the keys around them.
bool sees_neighbours(const Node& node);
/// Products of queries and keys, and of their weights and the values.
Expr attention_flops(const Node& node);

/// An operand of Attention, packed as [batch, position, heads·width] or not, as [batch, heads, position, width].
Value* with_heads_apart(NodeBuilder& b, Value* value, const Expr& heads);
/// Back, to the shape of `like`.
Value* with_heads_together(NodeBuilder& b, Value* value, const Value* like);
/// Which keys a query sees by its windows, from the places of the keys and of the queries, which broadcast; null: all.
Value* seen_in_windows(NodeBuilder& b, const Node& node, Value* keys, Value* queries);
/// The same by its windows and by is_causal.
Value* seen_by_position(NodeBuilder& b, const Node& node, Value* keys, Value* queries);
/// The mask with all keys; those behind its last are not seen.
Value* mask_over_keys(NodeBuilder& b, Value* mask, const Expr& keys);
/// That mask where a query sees a key, as far as `seen` says so. Either may be null, and null stands for all.
Value* mask_where_seen(NodeBuilder& b, Value* mask, Value* seen, const Expr& keys);
/// The factor of scores.
double attention_scale(const Node& node, const Expr& width);

/// Attention with windows, which opset 24 does not have, as one with a mask, and with sinks, as nodes of other
/// operators; nothing for a node without them.
std::vector<Value*> attention_body(NodeBuilder& b, const Node& node);

/// The place of an AttentionShard.
AttentionPlace place_of(const Node& node);
/// What two parts of the same rows' keys come to.
AttentionPart joined(NodeBuilder& b, const AttentionPart& one, const AttentionPart& other);

/// The local form of Attention: the operator itself, or AttentionShard.
std::vector<Value*> localize_attention(Localizer& local);

OpDef attention_shard_op();

}  // namespace tessera::ops
