#pragma once

#include <map>
#include <string>

#include "random/random_program.h"

namespace tessera::random {

using Tensors = std::map<std::string, Tensor>;

/// What a graph on the program's inputs gives on one rank, as it is written: nothing is rewritten.
Tensors run_whole(const Graph& graph, const Program& program);

}  // namespace tessera::random
