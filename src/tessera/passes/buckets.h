#pragma once

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// Lets small collectives of one kind and group start as one, where that saves latency (bucket_sets.h): moves them side
/// by side, and gives those of one bucket the same number as the attribute `bucket`. They stay nodes of their own. The
/// choice is that of the whole program, so all ranks make the same one.
///
/// A bucket has at most Context::bucket_bytes. By default these are the bytes that the group's links carry in four
/// times their latency, so that latency is a fifth of a bucket's time; and fewer where the new order would need a
/// twentieth more memory (at least 1 MiB more). Programs with control flow (ir/flow.h) stay as they are.
void buckets(spmd::Program& program, Context& context);

}  // namespace tessera::passes
