#pragma once

#include <optional>
#include <string>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

/// Models of written programs that are passed as files, without the folder whose manifest states the shards that their
/// tensors are.
namespace tessera::program_io {

/// Whether the model states that an input, an output or a state is a shard.
bool says_shares(const OnnxModel& model);

/// Throws a user error (stage "join") that names `file` and asks for the folder instead, if the model states that an
/// input or output is a shard, or that a state is a shard other than that of `rank` of the mesh. `one_for_all`: every
/// rank would run this model. Models from other tools state no shards.
void require_whole(const OnnxModel& model, const Mesh& mesh, int64_t rank, bool one_for_all, const std::string& file);

}  // namespace tessera::program_io
