#pragma once

#include <utility>
#include <vector>

namespace tessera::whatif {

/// Seconds of a transfer by its bytes: a fixed part and a slope, neither below 0.
struct Line {
  double fixed = 0, slope = 0;
  double at(double bytes) const { return fixed + slope * bytes; }
};

/// The line of the least sum of squared relative errors through points of bytes and seconds above 0. Through points of
/// one size it has no fixed part.
Line line_through(const std::vector<std::pair<double, double>>& points);

/// Of at least one value; of an even number of them, the higher of the two in the middle.
double median(std::vector<double> values);

}  // namespace tessera::whatif
