#pragma once

#include <string>

#include "tessera/ir/graph.h"

/// The order of communication in a written model.
///
/// With tokens, every node that communicates, and every call of a function that contains one, takes the token of its
/// predecessor as its last operand and gives its own as its last result: int64 scalars whose elements mean nothing. The
/// first token is an initializer, the last one a graph output, so no tool may drop, duplicate or reorder a node. Since
/// tools merge equal constants, the first token has an element that no other constant is likely to have; if a tool
/// merges it all the same, any constant may be the first token. By position, nodes state order = "position", and a
/// runtime must run them in the order of the file.
namespace tessera::dialect {

inline constexpr std::string_view kFirstToken = "tessera.token";
inline constexpr std::string_view kLastToken = "tessera.token.last";

/// Threads tokens through the model, in the present order. Returns whether there was anything to order.
bool thread_tokens(OnnxModel& model);

/// Sets order = "position" on every node that communicates.
void state_positions(OnnxModel& model);

/// The inverse of thread_tokens on a graph without calls; the nodes stay in the order of the tokens. Throws a user
/// error (stage "dialect") that names the nodes if tokens form no chain: one has several readers or none, two start
/// without a predecessor, or only some nodes have tokens.
void strip_tokens(Graph& graph);

}  // namespace tessera::dialect
