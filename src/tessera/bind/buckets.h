#pragma once

#include "tessera/bind/groups.h"

namespace tessera::bind {

/// Makes the collectives of each bucket one group, at the place of the last of them. Groups that read a result of the
/// bucket move behind it: programs that we write have none in between, but tools may have moved nodes there.
void join_buckets(const Graph& graph, Grouping& grouping);

}  // namespace tessera::bind
