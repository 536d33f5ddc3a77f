#pragma once

#include "tessera/explain.h"
#include "tessera/spmd/program.h"

namespace tessera::compiler {

/// Counts the communication of one step, and what rank 0 receives, at the program's hints.
ProgramSummary summarize(const spmd::Program& program);
ReshardSummary summarize(const spmd::ReshardRecord& record, const spmd::Program& program);

}  // namespace tessera::compiler
