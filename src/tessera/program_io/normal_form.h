#pragma once

#include "tessera/spmd/program.h"

namespace tessera::program_io {

/// The same computation in a normal form, which does not depend on the tools that have saved the model: Tessera's own
/// operators are replaced by their functions' bodies, values that follow from constants and shapes are folded, numbers
/// are constants, and each construct with several spellings has one (rewrite::canonicalize). The result is for
/// numbering (proof/meaning.h), not for running. If a node's operands are invalid, so that there is no normal form,
/// returns the program unchanged.
///
/// Example: a tool inlines tessera.GatherShard's function and folds the table's extent. In normal form, both that and
/// the written node are the body with the extent folded.
spmd::Program normal_form(const spmd::Program& program);

}  // namespace tessera::program_io
