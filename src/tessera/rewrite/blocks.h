#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

/// Models of many blocks that are alike, as a transformer's layers are, and the same models with fewer blocks.
namespace tessera::rewrite {

/// A run of alike subgraphs, each of which takes results of the one before it. Blocks are equal but for the names and
/// data of parameters (states) and the names of inputs that each has of its own, and the names of results. All else
/// that they use is made before the first one, or a source, and common to all. Only the last one's results are used by
/// the rest of the graph; each may make graph outputs, if all do.
///
/// Example: `a = f(x, w0, m); b = f(a, w1, m); c = f(b, w2, m); y = g(c)` are three blocks of one node; the values a
/// and b are carried from block to block, m is common.
struct Blocks {
  size_t begin = 0;   ///< the first one's first node, in the graph's order
  size_t period = 0;  ///< nodes of a block
  size_t count = 0;   ///< at least 2
};

/// The run of blocks that holds the most nodes; nullopt if no two blocks follow each other. A run may begin anywhere
/// within what a person calls a layer, and leaves out layers that differ, often the first one.
std::optional<Blocks> find_blocks(const OnnxModel& model);

/// The same model with the first `count` blocks (1 to blocks.count). All that remains keeps its name.
OnnxModel with_blocks(const OnnxModel& model, const Blocks& blocks, size_t count);

/// For each state, input and result that each block has of its own: its names, by block.
std::vector<std::vector<std::string_view>> names_by_block(const Graph& graph, const Blocks& blocks);

}  // namespace tessera::rewrite
