#pragma once

#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::dialect {

/// A graph's buckets, each the collectives with one number, in order. Throws a user error (stage "dialect") that names
/// the node and the fix unless those of each bucket
///   - have one operator (AllReduce, AllGather or ReduceScatter), axes, reduction and type,
///   - are neighbours in the order of communication,
///   - do not depend on each other.
/// So a rank that reaches one of them can reach all of them without waiting for others, and starting them as one
/// creates no new cycle.
std::vector<std::vector<const Node*>> buckets_of(const Graph& graph);

}  // namespace tessera::dialect
