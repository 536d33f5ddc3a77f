#pragma once

#include <string>
#include <vector>

#include "tessera/sim/simulate.h"

namespace tessera::sim {

/// A communication as it occupies links.
struct Transfer {
  double seconds = 0;               ///< if nothing disturbs it
  double bytes = 0;                 ///< as in cost::ring
  bool measured = false;            ///< on that machine
  std::vector<std::string> levels;  ///< of links, by name
};
Transfer transfer_of(const bind::Step& step, const Setting& setting);

}  // namespace tessera::sim
