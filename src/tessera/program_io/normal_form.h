#pragma once

#include "tessera/spmd/program.h"

namespace tessera::program_io {

/// The same computation in a normal form, which does not depend on the tools that have saved the model: the
/// bodies of their functions replace operators of our own domain, values that follow from constants and shapes are
/// folded, numbers are constants, and each construct with several spellings has one (rewrite::canonicalize). The result
/// is for numbering (proof/meaning.h), not for running. If a node does not fit its operands, so that the normal form
/// cannot be made, returns the program as it is.
///
/// Example: a tool inlines tessera.GatherShard's function and folds the table's extent. In normal form, both that and
/// the written node are the body with the extent folded.
spmd::Program normal_form(const spmd::Program& program);

}  // namespace tessera::program_io
