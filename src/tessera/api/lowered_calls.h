#pragma once

#include <string>
#include <vector>

#include "tessera/api/manifest.h"
#include "tessera/dialect/lowered.h"
#include "tessera/ir/graph.h"
#include "tessera/spmd/program.h"

namespace tessera::api {

/// The functions of domain tessera.comm that a written model calls, in branches too, as the collectives that they stand
/// for; before calls are inlined. User errors naming `source` for placements that cannot be read.
std::vector<spmd::LoweredCollective> lowered_collectives(const OnnxModel& model, const Manifest& manifest,
                                                         const std::string& source, dialect::FunctionCheck& functions);

}  // namespace tessera::api
