#pragma once

#include <optional>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

/// Collectives as other engines' operators, both ways: ONNX Runtime's AllReduce, AllGather and AllToAll (domain
/// com.microsoft), and TensorRT's DistCollective. docs/dialects.md says what each can express. Their order is that of
/// the nodes: they have no tokens.
namespace tessera::dialect {

enum class Engine { ort, tensorrt };

/// States every collective of a typed model of one rank as the engine's operators do; the model then imports the
/// operator sets that it uses and no others. Collectives say their members' extents. Returns whether the model holds
/// numbers of its rank's group, so that it serves ranks of that group only.
///
/// Throws a user error (stage "write") that names the node and the mend for what the engine cannot express.
bool to_foreign(OnnxModel& model, const Mesh& mesh, int64_t rank, Engine engine);

/// Whether the node is a collective of one of these engines.
bool is_foreign(const Node& node);

/// Gives every pair of operand and result of ONNX Runtime's variadic collectives a node of its own.
void split_variadic(Graph& graph);

/// Makes an engine's collective ours, in place, and infers its result; nodes may be added before it. The operand's type
/// must be known. `rank`: of the one that runs the graph, if it is known; without it a group must be all ranks.
///
/// Throws a user error (stage "dialect") that names the node and the mend: a group that is not that of some axes of the
/// mesh, or not this rank's; sizes that do not fit the mesh; what the dialect lacks.
void from_foreign(Graph& graph, Node& node, const Mesh& mesh, std::optional<int64_t> rank);

}  // namespace tessera::dialect
