#pragma once

#include <string>
#include <vector>

namespace tessera::report {

/// Round numbers from 0 to `end`, about `count` of them: 0, 0.5, 1, 1.5 of 1.7.
std::vector<double> ticks(double end, int count);
/// <div class=axis> with these values at their places between 0 and `end`, the first one with its unit.
std::string axis_html(const std::vector<double>& values, double end, const std::string& unit);

}  // namespace tessera::report
