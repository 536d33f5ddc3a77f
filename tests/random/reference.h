#pragma once

#include <map>
#include <string>

#include "random/random_program.h"

namespace tessera::random {

using Tensors = std::map<std::string, Tensor>;

/// The results of a graph on the program's inputs on one rank, without any rewriting.
Tensors run_whole(const Graph& graph, const Program& program);

}  // namespace tessera::random
