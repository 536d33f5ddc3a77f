#pragma once

#include <optional>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

namespace tessera::dialect {

/// Replaces calls of functions by their bodies, whose literals become constants; leaves the branches of Ifs alone.
void inline_calls(OnnxModel& model);

/// Makes initializers of the literals among the graph's own nodes.
void settle_literals(Graph& graph);

/// Turns a written model into the form that programs have in memory: calls of functions become their bodies, whose
/// literals become constants; nodes are in the order of communication and have no tokens; other engines' collectives
/// become ours; every node of the dialect follows schema.h. `rank` is the rank whose model it is, if that is known.
/// Throws user errors (stages "inline" and "dialect") that name the node.
void settle(OnnxModel& model, const Mesh& mesh, std::optional<int64_t> rank = std::nullopt);

}  // namespace tessera::dialect
