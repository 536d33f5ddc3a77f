#include "tessera/proof/seats.h"

#include "tessera/mesh/group.h"

namespace tessera::proof {

const std::vector<Seats::Seat>& Seats::along(const std::vector<std::string>& axes) {
  auto [found, fresh] = seats_.try_emplace(axes);
  std::vector<Seat>& seats = found->second;
  if (!fresh) return seats;
  const std::vector<AxisRef> parsed = parse_axes(axes, mesh_);
  seats.resize(static_cast<size_t>(mesh_.size()));
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    if (seats[rank].group >= 0) continue;
    std::vector<int> members = group_of(rank, parsed, mesh_);
    for (size_t m = 0; m < members.size(); ++m)
      seats[members[m]] = {static_cast<int>(groups_.size()), static_cast<int>(m)};
    groups_.push_back(std::move(members));
  }
  return seats;
}

}  // namespace tessera::proof
