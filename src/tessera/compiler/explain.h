#pragma once

#include <string>

#include "tessera/compiler/compile.h"
#include "tessera/tessera.h"

namespace tessera::compiler {

/// A user error if the model has no such tensor any more.
Explanation explain(const Compiled& compiled, const std::string& tensor);

}  // namespace tessera::compiler
