#pragma once

#include <string>

#include "tessera/ir/graph.h"
#include "tessera/write.h"

namespace tessera::program_io {

/// Throws a user error (stage "program") that names `source` and the node if communication in the model, its branches
/// or its functions does not have the form that the manifest states: ordered by tokens or by position, and consisting
/// of Send and Recv only if the manifest states that it is lowered to primitives.
void require_form(const OnnxModel& model, const WriteOptions& form, const std::string& source);

}  // namespace tessera::program_io
