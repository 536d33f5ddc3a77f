#pragma once

#include <set>

#include "tessera/kernels/groups.h"

namespace tessera::kernels {

/// Decides which values are views in the memory of others, and takes the groups that only make views out of `groups`:
///
/// - reshapes, transposes, splits, slices and repetitions whose readers can all step as the view does, or read views of
///   it that they can, and soon enough for the rest of the memory not to be kept for long;
/// - what a kernel that can scatter its result makes for a Transpose alone: it is written transposed.
///
/// `kept` values are read after the run: they are views of whole values only. `blocked` are those in blocks.
std::map<const Value*, Placed> assign_views(std::vector<NodeGroup>& groups, const std::set<const Value*>& kept,
                                            const std::map<const Value*, int64_t>& blocked, const Bound& values);

/// The views of whole, row-major values alone.
std::map<const Value*, Placed> assign_whole_views(std::vector<NodeGroup>& groups, const Bound& values);

}  // namespace tessera::kernels
