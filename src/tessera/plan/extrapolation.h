#pragma once

#include <compare>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/time.h"

/// Figures of large programs from those of small ones.
namespace tessera::plan {

/// How much of a model, and of its step, a program contains.
struct Scale {
  int64_t blocks = 0;  ///< alike blocks of the model; 0: it has none
  int micro_batches = 1;
  auto operator<=>(const Scale&) const = default;
};

/// A program of that scale, and its weight in a sum over several programs.
struct Sample {
  Scale scale;
  double weight = 1;
};

/// Two counts, from which linear figures of larger counts follow.
struct Counts {
  int64_t less = 0, more = 0;
};

/// Programs whose weighted sum has the figures of the whole one, if these are linear in the number of blocks, and in
/// that of micro-batches. Counts up to `more` are not extrapolated. The last sample is the largest.
///
/// Example: f(80 blocks) = f(4) + (80 - 4) / (4 - 3) · (f(4) - f(3)), so the weights are -76 of three blocks and 77 of
/// four. With micro-batches there are four programs, whose weights are the products of both pairs.
std::vector<Sample> samples_of(const Scale& whole, const Counts& blocks, const Counts& micro_batches);

/// The weighted sum of predictions, which sum_of() of samples at those scales has: times, bounds and chain. What
/// belongs to single ranks is left out. A single prediction of weight 1 stays as it is.
Prediction sum_of(const std::vector<std::pair<Prediction, double>>& predictions);

}  // namespace tessera::plan
