#pragma once

#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// The strides of [batch, heads, positions, width] in elements; width is contiguous. The 3-D form
/// [batch, positions, heads·width] is one such tensor.
struct HeadsLayout {
  int64_t batch = 0, head = 0, position = 0;

  int64_t at(int64_t b, int64_t h, int64_t p) const { return b * batch + h * head + p * position; }
};

/// A tensor of heads.
struct Heads {
  int64_t batch, heads, positions, width;
  HeadsLayout layout;
};
/// [batch, heads, positions, width], or [batch, positions, heads·width] with the heads' number in `attribute`; a user
/// error naming the node if it is neither.
Heads heads_of(const Node& node, const TensorDesc& desc, std::string_view attribute);

/// Which part of an Attention a node computes: AttentionShard's operand `place` (ops/attention.h).
struct AttentionPlace {
  int64_t first_query, queries;  ///< of all queries
  int64_t first_key;
  int64_t first_head;  ///< counted from the first query head that shares key head 0
  int64_t group;       ///< query heads per key head
};

/// The operand that holds the sinks.
constexpr size_t attention_sinks = 8;

/// An Attention node's extents and options.
struct AttentionShape {
  int64_t batch, q_heads, kv_heads, queries, past, fresh;  ///< `past` keys from the cache, then `fresh` ones
  int64_t width, value_width;
  HeadsLayout q, k, v, y;
  float scale, softcap;
  bool causal;
  int64_t left_window, right_window;  ///< -1: unbounded
  // The mask's strides, 0 where it is repeated, and the keys that it covers; those beyond are masked.
  HeadsLayout mask;
  int64_t mask_keys;
  AttentionPlace place;
  DType sinks;  ///< their type; undefined: there are none
  int threads;

  int64_t keys() const { return past + fresh; }
  /// The first of the query heads that share a key head, and how many they are.
  int64_t first_sharing(int64_t kv_head) const;
  int64_t count_sharing(int64_t kv_head) const;
  int64_t most_sharing() const;  ///< the largest such count
};

/// Reads operands (Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, and place and sink if they are there)
/// and attributes. User errors name the node.
AttentionShape attention_shape(const PrepareContext& context);

}  // namespace tessera::kernels
