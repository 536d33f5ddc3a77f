#pragma once

#include <string>
#include <vector>

#include "tessera/dialect/lowered.h"
#include "tessera/ir/graph.h"
#include "tessera/program_io/manifest.h"
#include "tessera/spmd/program.h"

namespace tessera::program_io {

/// Finds the calls of communicating functions in a model of a written program, before calls are inlined and also in
/// branches, and returns the collectives that they stand for. `file`: the ranks that run the model. Throws user errors
/// that name `source` for placements that cannot be read.
std::vector<spmd::LoweredCollective> lowered_collectives(const OnnxModel& model, const Manifest& manifest,
                                                         const Manifest::RankFile& file, const std::string& source,
                                                         dialect::FunctionCheck& functions);

}  // namespace tessera::program_io
