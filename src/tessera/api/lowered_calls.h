#pragma once

#include <string>
#include <vector>

#include "tessera/api/manifest.h"
#include "tessera/dialect/lowered.h"
#include "tessera/ir/graph.h"
#include "tessera/spmd/program.h"

namespace tessera::api {

/// The calls of communicating functions in a model of a written program, in branches too, as the collectives that they
/// stand for; before calls are inlined. `file`: the ranks that run the model. Throws user errors that name `source` for
/// placements that cannot be read.
std::vector<spmd::LoweredCollective> lowered_collectives(const OnnxModel& model, const Manifest& manifest,
                                                         const Manifest::RankFile& file, const std::string& source,
                                                         dialect::FunctionCheck& functions);

}  // namespace tessera::api
