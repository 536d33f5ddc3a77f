#pragma once

#include "tessera/bind/groups.h"

namespace tessera::bind {

/// Makes the collectives of each bucket one group, at the place of the last of them. Groups that read a result of the
/// bucket move after it: Tessera's programs have none in between, but other tools may have moved nodes there.
void join_buckets(const Graph& graph, Grouping& grouping);

}  // namespace tessera::bind
