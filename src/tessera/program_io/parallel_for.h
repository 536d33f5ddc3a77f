#pragma once

#include <optional>
#include <string>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

namespace tessera::program_io {

/// The operator of domain tessera.comm that holds a program: its attribute `body` is a graph that every rank of the
/// mesh (attributes `axes`, `sizes`) runs at once. The body's one input is the rank's number, an int64 scalar; all else
/// it takes from the graph around it. Result k is what the body gives as output k on rank `from`[k].
inline constexpr std::string_view kParallelFor = "ParallelFor";

/// Puts a model that every rank can run, whose inputs, states and outputs are whole, into the body of one node. The
/// result has the same inputs, initializers and outputs, but for the rank's number.
OnnxModel wrap_parallel_for(OnnxModel model, const Mesh& mesh);

/// The mesh of a model that is one such node; none of any other. User errors (stage "program") naming `source` for
/// axes and sizes that are no mesh.
std::optional<Mesh> parallel_for_mesh(const OnnxModel& model, const std::string& source);

/// The inverse. User errors (stage "program") naming `source` if the model is not one such node, or of another mesh
/// than `mesh`.
OnnxModel unwrap_parallel_for(OnnxModel model, const Mesh& mesh, const std::string& source);

}  // namespace tessera::program_io
