#pragma once

#include "tessera/spmd/program.h"

namespace tessera::program_io {

/// The same computation as tools that save models anew may spell it, too, and as it is compared: operators of our own
/// domain are their functions' bodies, what follows from constants and shapes is folded, numbers are constants, and
/// what has several spellings has one (rewrite::canonicalize). For numbering (proof/meaning.h), not for running. The
/// program as it is where that cannot be done, as of nodes that do not fit their operands.
///
/// Example: a tool inlines tessera.GatherShard's function and folds the table's extent; both that and the node that was
/// written become the body with the extent folded.
spmd::Program normal_form(const spmd::Program& program);

}  // namespace tessera::program_io
