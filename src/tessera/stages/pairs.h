#pragma once

#include <optional>
#include <vector>

#include "tessera/stages/sums.h"

namespace tessera::stages {

/// How stages lie if each rank has two.
enum class Pairs {
  none,  ///< otherwise
  loop,  ///< 0 1 2 0 1 2
  v,     ///< 0 1 2 2 1 0
};
Pairs pairs_of(const Sums& sums);

/// Ends of stages in pairs of which no rank takes longer than `rank_time`, and no stage longer than `stage_time`;
/// nullopt if there are none. Takes time in proportion to the ranks and, at worst, the third power of the blocks.
std::optional<std::vector<int64_t>> ends_of_pairs(const Sums& sums, Pairs pairs, double rank_time, double stage_time);

}  // namespace tessera::stages
