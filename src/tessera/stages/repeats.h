#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace tessera::stages {

/// Something of which a sequence has several copies, one behind the other.
struct Run {
  size_t begin = 0, period = 0, count = 0;  ///< of elements

  size_t end() const { return begin + period * count; }
};

/// The run that covers the most weight of elements [begin, end). Copies may be counted from any of their elements:
/// those are chosen that `price` says are the cheapest to divide at, the price of a division after an element, on
/// average over the run; among equals the most copies, then the latest. The period is the shortest, unless a longer one
/// covers about as much and divides at much lower prices.
///
///     e a m a m a m n   → (a m) three times, if dividing after m is as cheap as after a
///     c c c c c c       → (c c) three times, if dividing after every second c is much cheaper than after the others
///
/// nullopt if nothing repeats. Takes time in proportion to the square of the elements.
std::optional<Run> heaviest_run(const std::vector<int>& elements, const std::vector<double>& weights, size_t begin,
                                size_t end, const std::function<double(size_t)>& price);

}  // namespace tessera::stages
