#pragma once

#include <optional>
#include <vector>

#include "tessera/cost/links.h"
#include "tessera/spmd/reshard/reshard.h"

namespace tessera::passes {

/// A layout change in steps over one kind of link each, and how much more the busiest rank moves than an even share.
struct LevelSteps {
  std::vector<spmd::ReshardStep> steps;
  double imbalance = 1;
};

/// Splits `step` into levels (nearest first, at least two). For a tensor of 8 rows over two hosts of two ranks:
///
///   AllReduce tp      ReduceScatter tp:(2)2, AllReduce tp:(1)2, AllGather tp:(2)2; scatters along the part of a
///                     dimension that divides most evenly, at `hints`
///   AllGather tp      the rows are 2{tp:(1)2}·4{tp:(2)2}: gathers the major part, then the minor one, so that each row
///                     crosses between hosts once
///   ReduceScatter tp  the same in reverse
///
/// Invariant: before and after the steps every rank holds what it holds before and after `step`. Nullopt for a scalar,
/// which cannot be scattered, for rows that the units do not share evenly, and for other kinds.
std::optional<LevelSteps> by_levels(const spmd::ReshardStep& step, const std::vector<cost::GroupLevel>& levels,
                                    const Mesh& mesh, const std::map<std::string, int64_t, std::less<>>& hints);

}  // namespace tessera::passes
