#pragma once

#include <vector>

#include "tessera/spmd/reshard/reshard.h"

namespace tessera::spmd {

/// A layout change in plain steps, which always exist.
struct PlainPlan {
  std::vector<ReshardStep> line_up;  ///< after which both layouts have parts of the same sizes
  Sharding from, to;                 ///< the layouts with these parts
  std::vector<ReshardStep> steps;    ///< from the one to the other
};

/// Slices first, which is free; then reduces partial axes, by reduce-scatter if the target splits a dimension over
/// them, else by all-reduce; then moves axes between dimensions by all-to-all, reorders the axes of a part where that
/// moves less than a gather, and gathers the others. If parts do not line up, the dimension is gathered whole and
/// sliced anew. Each step is chosen by itself, so other sequences may move less.
///
/// A tensor reaches a place when other ranks drop their replicas (free), by Reduce from partial, by Gather from split,
/// or by Permute from another place; it leaves a place by Broadcast, Scatter or Permute. Only shards move between
/// places, if either side is split: [-] at(pp=0) → [8{tp}] at(pp=1) slices first, [8{tp}] at(pp=0) → [-] at(pp=1)
/// gathers last.
PlainPlan plain_plan(const Sharding& from, const Sharding& to);

}  // namespace tessera::spmd
