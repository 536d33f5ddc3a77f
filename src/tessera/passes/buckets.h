#pragma once

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// Lets small collectives of one kind and group start as one, where that saves latency (bucket_sets.h): moves them side
/// by side, and gives those of a bucket the same number in the attribute `bucket`. They stay separate nodes. The choice
/// is made for the whole program, so it is the same on all ranks.
///
/// A bucket has at most Context::bucket_bytes. By default these are the bytes that the group's links carry in four
/// times their latency, so that latency is a fifth of a bucket's time (by the prices of a machine, if one is named,
/// with the latencies of all messages of an all-reduce); fewer if the new order would need a twentieth more memory (at
/// least 1 MiB more). Programs with control flow (ir/flow.h) stay as they are.
void buckets(spmd::Program& program, Context& context);

}  // namespace tessera::passes
