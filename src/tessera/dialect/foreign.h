#pragma once

#include <optional>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

/// Translates collectives to and from other engines' operators: ONNX Runtime's AllReduce, AllGather and AllToAll
/// (domain com.microsoft), and TensorRT's DistCollective. docs/dialects.md says what each can express. They have no
/// tokens; the order of the nodes orders communication.
namespace tessera::dialect {

enum class ForeignEngine { ort, tensorrt };

/// Writes every collective of a typed model of one rank as the engine's operators; the model then imports only the
/// operator sets that it uses. Collectives must state their members' extents. Returns whether the model contains the
/// ranks of its group as numbers, and so is valid for ranks of that group only.
///
/// Throws a user error (stage "write") that names the node and the fix if the engine cannot express a collective.
bool to_foreign(OnnxModel& model, const Mesh& mesh, int64_t rank, ForeignEngine engine);

/// Whether the node is a collective of one of these engines.
bool is_foreign(const Node& node);

/// Gives every pair of operand and result of ONNX Runtime's variadic collectives a node of its own.
void split_variadic(Graph& graph);

/// Makes an engine's collective ours, in place, and infers its result; may add nodes before it. The operand's type must
/// be known. `rank` is the rank that runs the graph, if it is known; without it a group must be all ranks.
///
/// Throws a user error (stage "dialect") that names the node and the fix: for a group that does not follow axes of the
/// mesh, or is not this rank's; for sizes that do not fit the mesh; for anything that the dialect lacks.
void from_foreign(Graph& graph, Node& node, const Mesh& mesh, std::optional<int64_t> rank);

}  // namespace tessera::dialect
