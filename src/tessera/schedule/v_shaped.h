#pragma once

#include "tessera/schedule/table.h"

namespace tessera::schedule {

/// A schedule on a V of `ranks`, each with two stages that hold together at most `most` micro-batches, at least 2.
PipelineTable make_v_shaped(int64_t ranks, int64_t micro_batches, int64_t most);

}  // namespace tessera::schedule
