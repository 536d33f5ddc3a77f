#pragma once

#include <optional>
#include <string>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

/// The models of programs that arrive with collectives in them.
namespace tessera::program_io {

/// Whether any node of the model, functions included, is a collective of ours or of another engine.
bool has_collectives(const OnnxModel& model);

/// Whether any node of the model, functions included, computes from the number of the rank that runs it.
bool asks_for_rank(const OnnxModel& model);

/// The first half of reading such a model, for which no mesh is needed: functions inlined, operators in their newest
/// form, communication in the order of the nodes and without tokens.
void flatten(OnnxModel& model);

/// The second half: collectives become ours, types are inferred, what exporters spelt out is raised. Contents are of
/// `rank`, or over axis indices without it. User errors name the node; what the file declares of a result, but is not
/// so, is one of them.
void settle_collectives(OnnxModel& model, const Mesh& mesh, std::optional<int64_t> rank);

}  // namespace tessera::program_io
