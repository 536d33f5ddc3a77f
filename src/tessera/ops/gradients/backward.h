#pragma once

#include "tessera/ops/library/node_builder.h"

/// Operators of our own domain that compute gradients, where one kernel does better than the nodes of ordinary
/// operators that are their bodies (OpDef::body).
///
///   AttentionGradient (Q, K, V, attn_mask?, Y, dY) → dQ, dK, dV
///     scale, softcap, is_causal, left_window_size, right_window_size as Attention has them; Y is its result. Q, Y, dY
///     and dQ are [batch, heads, queries, width], K and V [batch, key heads, keys, width], dK and dV [batch, heads,
///     keys, width]: of each query head on its own, so that heads can be split however they share keys. The scores are
///     never in memory as a whole.
namespace tessera::ops {

inline constexpr std::string_view kGradientDomain = "tessera";

/// An Attention's operands, result and the result's gradient, all of rank 4 but the mask.
struct AttentionBackward {
  Value *q, *k, *v, *mask, *y, *g;
  Value* sink = nullptr;
};

/// Per query head as AttentionGradient's; of the scores after the mask: [batch, heads, queries, keys]; and of the
/// sinks.
struct AttentionGradients {
  Value *q = nullptr, *k = nullptr, *v = nullptr, *scores = nullptr, *sink = nullptr;
};

/// The gradients as nodes of ordinary operators, for an Attention with the attributes of `node`.
AttentionGradients attention_gradients(NodeBuilder& b, const Node& node, const AttentionBackward& forward);

}  // namespace tessera::ops
