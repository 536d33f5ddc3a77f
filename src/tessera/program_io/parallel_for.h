#pragma once

#include <optional>
#include <string>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

namespace tessera::program_io {

/// The operator of domain tessera.comm that holds a program: its attribute `body` is a graph that every rank of the
/// mesh (attributes `axes`, `sizes`) runs at once. The body's one input is the rank's number, an int64 scalar; it takes
/// everything else from the graph around it. Result k is output k of the body on rank `from`[k].
inline constexpr std::string_view kParallelFor = "ParallelFor";

/// Puts a model that every rank can run, with whole inputs, states and outputs, into the body of one node. The result
/// has the same inputs, initializers and outputs, except the rank's number.
OnnxModel wrap_parallel_for(OnnxModel model, const Mesh& mesh);

/// The mesh of a model that is one such node; nullopt for other models. Throws user errors (stage "program") that name
/// `source` if axes and sizes are not a mesh.
std::optional<Mesh> parallel_for_mesh(const OnnxModel& model, const std::string& source);

/// The inverse. Throws user errors (stage "program") that name `source` if the model is not one such node, or its mesh
/// is not `mesh`.
OnnxModel unwrap_parallel_for(OnnxModel model, const Mesh& mesh, const std::string& source);

}  // namespace tessera::program_io
