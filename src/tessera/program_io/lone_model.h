#pragma once

#include <optional>
#include <string>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

/// Models of written programs that are given as files, without the folder whose manifest says what their tensors are
/// shares of.
namespace tessera::program_io {

/// Whether the model says that an input, an output or a state is a share.
bool says_shares(const OnnxModel& model);

/// Throws a user error (stage "join") that names `file` and the folder to give instead, if the model says that an input
/// or output is a share of a whole one; or a state is, and this `rank` of the mesh would not hold just that share.
/// `one_for_all`: every rank would run this model. Models that others wrote say nothing of shares.
void require_whole(const OnnxModel& model, const Mesh& mesh, int64_t rank, bool one_for_all, const std::string& file);

}  // namespace tessera::program_io
