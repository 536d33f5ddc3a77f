#pragma once

#include <optional>
#include <string>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

/// Reads models of programs that already contain collectives.
namespace tessera::program_io {

/// Whether any node of the model, functions included, is a collective of Tessera or of another engine.
bool has_collectives(const OnnxModel& model);

/// Whether any node of the model, functions included, uses the number of the rank that runs it.
bool asks_for_rank(const OnnxModel& model);

/// Whether a file may declare this type of a value of that type; an extent that is a symbol may be any number.
bool agrees(const TensorType& declared, const TensorType& found);

/// The first step of reading such a model, which needs no mesh: inlines functions, brings operators to their newest
/// form, puts nodes in the order of communication and drops tokens.
void flatten(OnnxModel& model);

/// The second step: converts collectives to Tessera's, infers types, and raises exporters' decompositions. Contents are
/// those of `rank` or, without it, expressions over axis indices. Throws user errors that name the node, also if a
/// result differs from the file's declaration.
void settle_collectives(OnnxModel& model, const Mesh& mesh, std::optional<int64_t> rank);

}  // namespace tessera::program_io
