#pragma once

#include <cstdint>
#include <vector>

namespace tessera::stages {

/// What dealing out blocks needs to know of one.
struct Load {
  double seconds = 0;
  double fixed = 0, held = 0;  ///< bytes: once, and for each micro-batch that is in flight
  double cut = 0;              ///< bytes that cross a division after it
};

struct Deal {
  int64_t stages = 1;
  std::vector<int64_t> ranks_of;  ///< by stage
  std::vector<double> speeds;     ///< by rank
  std::vector<double> memory;     ///< by stage; empty: any
  std::vector<double> in_flight;  ///< by stage
  /// How often the longest stage's time is added to that of the slowest rank, where ranks have several stages: the
  /// pipeline fills and drains by stages, in (ranks - 1) / micro-batches of them for each micro-batch (arXiv
  /// 2104.04473, section 2.2).
  double fill = 0;
};

struct Dealt {
  std::vector<int64_t> counts;  ///< by stage, its blocks; none: no division keeps the memory
  bool best = true;             ///< none is better
};

/// Deals blocks out to consecutive stages: a micro-batch's time, that of the rank that takes longest and of filling the
/// pipeline, is as short as possible, among the divisions with that time the fewest bytes cross, and among these the
/// times are the most even. Exact by dynamic programming if each rank has one stage or, but for the bytes, two in a
/// loop or a V; else by a search that is exact where it ends, and otherwise gives the best that it has found.
Dealt deal_out(const std::vector<Load>& blocks, const Deal& deal);

}  // namespace tessera::stages
