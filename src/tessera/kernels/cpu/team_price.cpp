#include "tessera/kernels/cpu/team_price.h"

#include <algorithm>

namespace tessera::kernels {

void TeamPrice::note(Time loop) {
  loops_[next_] = loop;
  next_ = (next_ + 1) % loops_.size();
}

TeamPrice::Time TeamPrice::get() const {
  std::array<Time, 3> sorted = loops_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[1];
}

}  // namespace tessera::kernels
