#pragma once

#include "tessera/explain.h"
#include "tessera/spmd/program.h"

namespace tessera::compiler {

/// Counts the communication of one step, and the bytes that rank 0 receives, with symbols as hinted.
ProgramSummary summarize(const spmd::Program& program);
ReshardSummary summarize(const spmd::ReshardRecord& record, const spmd::Program& program);

}  // namespace tessera::compiler
