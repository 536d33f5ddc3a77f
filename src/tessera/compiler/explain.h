#pragma once

#include <string>

#include "tessera/compiler/compile.h"
#include "tessera/tessera.h"

namespace tessera::compiler {

/// Throws a user error if the model no longer has such a tensor.
Explanation explain(const Compiled& compiled, const std::string& tensor);

}  // namespace tessera::compiler
