#pragma once

#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// Where [batch, heads, positions, width] lies, width contiguous; strides in elements. The 3-D form
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
  int threads;

  int64_t keys() const { return past + fresh; }
  int64_t group() const { return kv_heads == 0 ? 0 : q_heads / kv_heads; }  ///< query heads per key head
};

/// Reads operands (Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen) and attributes. User errors name the
/// node.
AttentionShape attention_shape(const PrepareContext& context);

}  // namespace tessera::kernels
