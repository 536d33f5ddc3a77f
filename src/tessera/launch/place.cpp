#include "tessera/launch/place.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::launch {

Place place_of(int rank, const std::vector<int64_t>& hosts, const std::vector<int64_t>& local_ranks,
               const std::vector<int64_t>& local_sizes) {
  const auto own = static_cast<size_t>(rank);
  const bool are_known = std::all_of(local_ranks.begin(), local_ranks.end(), [](int64_t n) { return n >= 0; }) &&
                         std::all_of(local_sizes.begin(), local_sizes.end(), [](int64_t n) { return n > 0; });
  if (!are_known)
    return {static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank, hosts[own])),
            static_cast<int>(std::count(hosts.begin(), hosts.end(), hosts[own]))};
  std::map<std::pair<int64_t, int64_t>, size_t> taken;  // by host and number
  for (size_t other = 0; other < hosts.size(); ++other) {
    if (local_ranks[other] >= local_sizes[other])
      fail("launch",
           "the launcher says that rank {} is rank {} (from 0) of {} on its machine; correct the launcher's variables, "
           "or unset both for all ranks",
           other, local_ranks[other], local_sizes[other]);
    const auto [first, is_new] = taken.try_emplace({hosts[other], local_ranks[other]}, other);
    if (!is_new)
      fail("launch",
           "the launcher says that ranks {} and {} of one machine are both rank {} there; correct the launcher's "
           "variables, or unset them for all ranks",
           first->second, other, local_ranks[other]);
  }
  return {static_cast<int>(local_ranks[own]), static_cast<int>(local_sizes[own])};
}

}  // namespace tessera::launch
