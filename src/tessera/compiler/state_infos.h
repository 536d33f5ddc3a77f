#pragma once

#include <vector>

#include "tessera/explain.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::compiler {

/// Parameters and other states of a program as the model names them. Those that the program holds as several tensors
/// are one, with its pieces.
std::vector<StateInfo> states_of(const runtime::RankPrograms& programs);

}  // namespace tessera::compiler
