#pragma once

#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

/// The model with initializers that change from run to run (Model::with_states): each pattern pairs states with the
/// outputs that are their next values, or, without '=', names states that another program changes. Throws a user error
/// for a pattern that pairs nothing, and for a pair whose types differ.
OnnxModel with_states(const OnnxModel& model, const std::vector<std::string>& patterns);

}  // namespace tessera::compiler
