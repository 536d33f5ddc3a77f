#pragma once

#include <string>
#include <vector>

namespace tessera::whatif {

/// A transfer of a rank while it was under way, in seconds.
struct Occupation {
  double begin = 0, end = 0;
  std::vector<std::string> levels;    ///< of links
  bool leaves = true, enters = true;  ///< the rank sends, receives
};

/// By transfer, the seconds that it lost because others of the rank were under way over the same links in the same
/// direction: as in the simulator, n of these have the n-th part of the bandwidth each.
///
///   a from 0 to 40 ms, b from 10 to 30 ms: both lost 10 ms; by themselves they take 30 and 10
std::vector<double> lost_to_sharing(const std::vector<Occupation>& transfers);

}  // namespace tessera::whatif
