#pragma once

#include <string>

#include "tessera/compiler/compile.h"
#include "tessera/explain.h"

namespace tessera::compiler {

/// Whether the compiled model has the tensor, or a stack that it is a row of.
bool can_explain(const Compiled& compiled, const std::string& tensor);
/// Throws a user error if it has neither.
Explanation explain(const Compiled& compiled, const std::string& tensor);

}  // namespace tessera::compiler
