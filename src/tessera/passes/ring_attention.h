#pragma once

#include <string_view>

#include "tessera/spmd/program.h"

namespace tessera::passes {

struct Context;

/// When keys go around a ring of ranks instead of being gathered.
enum class RingAttention { by_cost, always, never };

/// "auto" or "", "always", "never". Throws a user error for anything else.
RingAttention parse_ring_attention(std::string_view text);

/// Rewrites attention whose keys and values are gathered for this attention alone: each rank begins with its own block
/// of keys, and passes blocks on to the next member of the group while it computes (Liu, Zaharia and Abbeel 2023, "Ring
/// Attention with Blockwise Transformers"). So a rank holds two or three blocks of keys at a time instead of all, and
/// messages travel during the products. For 3 members:
///
///     k = AllGather (k0), v = AllGather (v0), y = Attention (q, k, v)
///
///     Send k0, v0; k1, v1 = Recv;  y0, most0, sums0 = AttentionShard (q, k0, v0)
///     Send k1, v1; k2, v2 = Recv;  y1, … = joined (y0, …; AttentionShard (q, k1, v1))
///                                  y = joined (y1, …; AttentionShard (q, k2, v2))
///
/// If queries are causal and split like keys, no block goes from the last member to the first, since no query there
/// attends to it.
///
/// By cost (auto), this is done where it is faster than the gathers, at the sizes of the program's hints. A ring costs
/// the time of its messages that products do not hide, and the time of joining results: on the machine that is named,
/// else with constants for products and memory, and only if the topology is known. All members of the group must
/// have queries of their own. Attention inside loops and branches stays as it is.
void ring_attention(spmd::Program& program, Context& context);

}  // namespace tessera::passes
