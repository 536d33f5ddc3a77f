#pragma once

#include <vector>

#include "tessera/stages/deal.h"

namespace tessera::stages {

/// Times that differ by less than this share are equal.
inline constexpr double kSameTime = 1e-9;

/// Sums over consecutive blocks, at a stage.
class Sums {
 public:
  Sums(const std::vector<Load>& blocks, const Deal& deal);

  int64_t blocks() const { return static_cast<int64_t>(loads_.size()); }
  int64_t stages() const { return deal_.stages; }
  int64_t rank(int64_t stage) const {
    return deal_.ranks_of.empty() ? stage : deal_.ranks_of[static_cast<size_t>(stage)];
  }
  double speed(int64_t rank) const { return deal_.speeds.empty() ? 1 : deal_.speeds[static_cast<size_t>(rank)]; }
  /// Of blocks [begin, end) at a stage.
  double seconds(int64_t stage, int64_t begin, int64_t end) const;
  double memory(int64_t stage, int64_t begin, int64_t end) const;
  bool fits(int64_t stage, int64_t begin, int64_t end) const;
  /// The work of these blocks, which a rank of speed 1 does in as many seconds.
  double work(int64_t begin, int64_t end) const { return between(seconds_, begin, end); }
  /// Bytes that cross a division after `place` blocks.
  double cut(int64_t place) const;
  /// Of stages with these ends: the time of the slowest rank, and the bytes of all divisions.
  double slowest(const std::vector<int64_t>& ends) const;
  /// The time of the longest stage.
  double longest(const std::vector<int64_t>& ends) const;
  /// That of the slowest rank, and of filling the pipeline (Deal::fill).
  double micro_batch(const std::vector<int64_t>& ends) const;
  double fill() const { return deal_.fill; }
  /// The sum of the ranks' squared times.
  double unevenness(const std::vector<int64_t>& ends) const;
  double all_cuts(const std::vector<int64_t>& ends) const;

 private:
  std::vector<double> times(const std::vector<int64_t>& ends) const;  // by rank
  static double between(const std::vector<double>& sums, int64_t begin, int64_t end) {
    return sums[static_cast<size_t>(end)] - sums[static_cast<size_t>(begin)];
  }

  const Deal& deal_;
  const std::vector<Load>& loads_;
  std::vector<double> seconds_, fixed_, held_;  // of the blocks before
};

std::vector<int64_t> counts_of(const std::vector<int64_t>& ends);

}  // namespace tessera::stages
