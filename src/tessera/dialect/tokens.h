#pragma once

#include <string>

#include "tessera/ir/graph.h"

/// The order of communication, as a written model states it.
///
/// With tokens, every node that communicates, and every call of a function in which one does, takes the token of the
/// one before it as its last operand and gives one as its last result: int64 scalars whose elements mean nothing. The
/// first token is an initializer, the last one a graph output, so that no tool may drop, double or reorder a node. The
/// first one has an element that no other constant is likely to have, since tools make equal constants one; where they
/// do, it may be any constant.
/// By position, nodes say order = "position" and must be run in the order of the file.
namespace tessera::dialect {

inline constexpr std::string_view kFirstToken = "tessera.token";
inline constexpr std::string_view kLastToken = "tessera.token.last";

/// Threads tokens through the model, in the present order. Returns whether there was anything to order.
bool thread_tokens(OnnxModel& model);

/// Says order = "position" on every node that communicates.
void state_positions(OnnxModel& model);

/// The inverse of thread_tokens on a graph without calls, whose nodes stay in the order of the tokens. Throws a user
/// error (stage "dialect") that names the nodes where tokens are no chain: one has several readers or none, two start
/// without a predecessor, or only some nodes have tokens.
void strip_tokens(Graph& graph);

}  // namespace tessera::dialect
