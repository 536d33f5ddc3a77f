#pragma once

#include <optional>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

namespace tessera::dialect {

/// Calls of functions become their bodies, whose literals become constants; not so in the branches of Ifs.
void inline_calls(OnnxModel& model);

/// A model as it was written, in the form that programs have in memory: calls of functions become their bodies, whose
/// literals become constants, communication is in the order of the nodes and has no tokens, other engines' collectives
/// are ours, and every node of the dialect is one that schema.h describes. `rank`: the one whose model it is, if that
/// is known. Throws user errors (stages "inline" and "dialect") that name the node.
void settle(OnnxModel& model, const Mesh& mesh, std::optional<int64_t> rank = std::nullopt);

}  // namespace tessera::dialect
