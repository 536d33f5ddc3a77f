#pragma once

#include <string>
#include <vector>

#include "tessera/report/inputs.h"

namespace tessera::report {

/// Microseconds of a track; computing + exposed + idle is the timeline's length.
struct TrackTimes {
  double computing = 0, exposed = 0, idle = 0;
  double moving = 0;  ///< transfers, also those that computing hides
};
TrackTimes times_of(const Track& track, double end);

/// A track as SVG of so many bins: what takes most of each bin, in one path for each kind, so that the size does not
/// grow with the number of operations. Below, a narrow band shows transfers.
std::string lane_svg(const Track& track, const Timeline& timeline, int bins, double least_named);

/// The length in microseconds from which operations get a title, so that there are at most `most` titles.
double least_named(const Timeline& timeline, int bins, size_t most);

}  // namespace tessera::report
