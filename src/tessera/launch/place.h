#pragma once

#include <cstdint>
#include <vector>

namespace tessera::launch {

/// A rank among those of its machine.
struct Place {
  int local_rank = 0;
  int local_size = 1;  ///< ranks on the machine
};

/// The place of `rank`: what launchers say, if they say both numbers of every rank; otherwise what the hosts say, for
/// all ranks and both numbers, since one number of each could contradict each other (containers are hosts of their
/// own). By rank: its host (comm::this_host), and what its launcher says: its number on its machine, -1 if nothing, and
/// how many ranks there are, 0 if nothing. All ranks get the same lists, and so decide alike. Throws a user error if
/// launchers give a rank a number that is not below its machine's ranks, or two ranks of a host one number.
Place place_of(int rank, const std::vector<int64_t>& hosts, const std::vector<int64_t>& local_ranks,
               const std::vector<int64_t>& local_sizes);

}  // namespace tessera::launch
