#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tessera/explain.h"
#include "tessera/spmd/program.h"

namespace tessera::compiler {

/// Parameters and other states of ranks' programs as the model names them. Those that a program holds as several
/// tensors are one, with its pieces.
std::vector<StateInfo> states_of(std::span<const std::shared_ptr<const spmd::Program>> programs);

}  // namespace tessera::compiler
