#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tessera/base/descriptor.h"

namespace tessera::comm {

/// Sees at once when the process of another rank on this host ends. MPI's launcher sees it, too, but only ends the
/// other ranks, after a time that it chooses and without telling them why.
class Deaths {
 public:
  /// `hosts` and `processes` are by rank: equal numbers for ranks of one host, and the numbers of their processes
  /// there.
  Deaths(int rank, std::span<const int64_t> hosts, std::span<const int64_t> processes);

  /// The ranks that have ended since the last call; never waits.
  std::vector<int> look();

 private:
  std::map<int, Descriptor> handles_;  // of processes that live, by rank
};

}  // namespace tessera::comm
