#pragma once

#include <string_view>

#include "tessera/ir/graph.h"

/// Experts: a mixture of feed-forward networks, of which each token takes a few. For each of its choices c, token t
/// adds
///
///     (weights[t, c] · h) · down[e] + weights[t, c] · down_bias[e]    with e = choices[t, c],
///     h = act(g)                      g = x[t] · gate[e] + gate_bias[e]
///     h = act(g) · (u + beta)         u = x[t] · up[e] + up_bias[e], if it is gated
///
/// It computes tokens · choices rows, whatever the number of experts. In a shard, of which two more operands say where
/// it begins and how many experts there are in all, choices of other experts add nothing.
///
/// Attributes: `activation` ("identity", "relu", "gelu", "gelu_tanh", "swish") with `alpha` (of swish: g · σ(alpha·g));
/// `gated` (below); `beta`; `limit`, if given: g is at most this, and u within ± this.
namespace tessera {

inline constexpr std::string_view kExpertsDomain = "tessera";

struct ExpertsOperand {
  enum : size_t {
    tokens,     ///< [tokens, in]
    choices,    ///< [tokens, choices], of int32 or int64
    weights,    ///< [tokens, choices]
    gate,       ///< [experts, in, hidden], or [experts, in, 2·hidden] with up in it
    down,       ///< [experts, hidden, out]
    gate_bias,  ///< [experts, hidden or 2·hidden], optional
    down_bias,  ///< [experts, out], optional
    up,         ///< [experts, in, hidden], if it is apart
    up_bias,    ///< [experts, hidden], optional
    offset,     ///< of a shard: its first expert
    all,        ///< of a shard: the number of experts
  };
};

/// Where the other factor of a gated unit comes from: the attribute `gated`.
enum class Gated {
  no,           ///< "no": there is none
  apart,        ///< "apart": the operand `up`
  halves,       ///< "halves": the first half of gate's columns is g's, the second u's
  interleaved,  ///< "interleaved": of each two columns, the first is g's, the second u's
};

/// A user error for another text.
Gated gated_of(const Node& node);
std::string_view name_of(Gated gated);
/// Whether gate's columns hold u's, too.
inline bool is_fused(Gated gated) {
  return gated == Gated::halves || gated == Gated::interleaved;
}

}  // namespace tessera
