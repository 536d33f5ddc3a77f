#pragma once

#include <string>

#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// The program in ONNX text form, with the layout of each value as a comment on its line:
///     y = MatMul (h, w)  # [batch, 128]: [-, -] partial(sum:tp)
/// The comment gives the local shape, then the global tensor's sharding. States and inputs come first, with theirs.
std::string print_program(const Program& program);

}  // namespace tessera::spmd
