#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tessera/ir/flow.h"
#include "tessera/passes/block_ring.h"

namespace tessera::passes {

/// What a collective moves in blocks of a dimension.
struct RingCollective {
  size_t dim = 0;             ///< that is gathered or scattered
  std::vector<AxisRef> axes;  ///< of the group, major first, as the blocks' part spells them
  std::string value;          ///< name of the global value
};

/// Of an AllGather or a ReduceScatter; or why its blocks cannot go around a ring, as a part of a sentence: "it is in a
/// loop or branch".
std::variant<RingCollective, std::string> ring_collective(const spmd::Program& program, const flow::Flow& flow,
                                                          const Node& node);

/// The product whose sum over ranks a ReduceScatter or AllReduce takes, and that nothing else reads; or why there is
/// none.
std::variant<Node*, std::string> summed_product(const spmd::Program& program, const Node& node);

}  // namespace tessera::passes
