#pragma once

#include "tessera/bind/groups.h"

namespace tessera::bind {

/// Makes the collectives of each bucket one group, in the turn of the last of them. What reads a result of another of
/// them comes after it; as we write programs, there is nothing between them, but tools may have moved nodes there.
void join_buckets(const Graph& graph, Grouping& grouping);

}  // namespace tessera::bind
