#pragma once

#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

/// The model with these results of its nodes as outputs, in that order (Model::with_outputs), without the nodes that
/// none of them needs. Throws a user error for a name that no result has or that is given twice, and for none at all.
OnnxModel with_outputs(const OnnxModel& model, const std::vector<std::string>& names);

}  // namespace tessera::compiler
