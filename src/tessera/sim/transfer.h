#pragma once

#include <string>
#include <vector>

#include "tessera/sim/simulate.h"

namespace tessera::sim {

/// What a communication takes, and the links that it occupies.
struct Transfer {
  double seconds = 0;               ///< without contention
  double bytes = 0;                 ///< as in cost::ring
  bool measured = false;            ///< on that machine, and not computed
  std::vector<std::string> levels;  ///< of links, by name
};
Transfer transfer_of(const bind::Step& step, const Setting& setting);

}  // namespace tessera::sim
