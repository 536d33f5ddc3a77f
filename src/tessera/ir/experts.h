#pragma once

#include <string_view>

#include "tessera/ir/graph.h"

/// Experts: a mixture of feed-forward networks, of which each token uses a few. Token t sums over its choices c
///
///     (weights[t, c] · h) · down[e] + weights[t, c] · down_bias[e]    with e = choices[t, c],
///     h = act(g)                      g = x[t] · gate[e] + gate_bias[e]
///     h = act(g) · (u + beta)         u = x[t] · up[e] + up_bias[e], if it is gated
///
/// It computes tokens · choices rows, whatever the number of experts. In a shard, two more operands give its first
/// expert and the number of all experts; choices of other experts add nothing.
///
/// Matrices may be codes of 4 or 8 bits instead (`gate_bits`, `down_bits`, `up_bits`, by default 4), two 4-bit codes to
/// a byte, the first in its low half. They are stored by columns: gate and up [experts, columns, bytes of `in` codes],
/// down [experts, out, bytes of `hidden` codes]. A scale, and perhaps a zero point, belongs to each block of
/// `block_size` codes, or to a whole column:
///
///     matrix[e][l, j] = (code[e, j, l] - zero[e, j, l / block_size]) · scale[e, j, l / block_size]
///
/// Without zero points, zero is half the range of codes (8 or 128). A sum over hidden elements is split between blocks.
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
    // Scales and zero points of codes; [experts, columns, blocks], or [experts, columns, 1] if they belong to whole
    // columns.
    gate_scales,  ///< float32; present if and only if matrices are codes
    gate_zeros,   ///< uint8, optional
    down_scales,
    down_zeros,
    up_scales,
    up_zeros,
    count,
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

/// Whether its matrices are codes.
inline bool has_codes(const Node& node) {
  return node.input(ExpertsOperand::gate_scales) != nullptr;
}

/// Where a matrix of codes is, and what belongs to it.
struct ExpertsCodes {
  size_t codes, scales, zeros;
  std::string_view bits;  ///< the attribute
};
inline constexpr ExpertsCodes kGateCodes{ExpertsOperand::gate, ExpertsOperand::gate_scales, ExpertsOperand::gate_zeros,
                                         "gate_bits"};
inline constexpr ExpertsCodes kDownCodes{ExpertsOperand::down, ExpertsOperand::down_scales, ExpertsOperand::down_zeros,
                                         "down_bits"};
inline constexpr ExpertsCodes kUpCodes{ExpertsOperand::up, ExpertsOperand::up_scales, ExpertsOperand::up_zeros,
                                       "up_bits"};

}  // namespace tessera
