#pragma once

#include <vector>

#include "tessera/spmd/program.h"

namespace tessera::passes {

/// Adds a node before `before` that computes what `node` does, of these operands. Its results are named after those of
/// `node`, and stand for the same global values.
Node* copy_node(spmd::Program& program, const Node& node, std::vector<Value*> operands, const Node* before);

}  // namespace tessera::passes
