#pragma once

#include <string>
#include <vector>

#include "tessera/compiler/compile.h"
#include "tessera/explain.h"

namespace tessera::compiler {

/// Whether the compiled model has the tensor, or a stack that it is a row of.
bool can_explain(const Compiled& compiled, const std::string& tensor);
/// Throws a user error if it has neither.
Explanation explain(const Compiled& compiled, const std::string& tensor);
/// All tensors that carry data, constants left out, in the order in which nodes make or read them.
std::vector<Explanation> explain_all(const Compiled& compiled);

}  // namespace tessera::compiler
