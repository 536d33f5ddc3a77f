#include "tessera/comm/mpi/deaths.h"

#include <poll.h>
#include <sys/syscall.h>

namespace tessera::comm {

Deaths::Deaths(int rank, std::span<const int64_t> hosts, std::span<const int64_t> processes) {
  const auto own = static_cast<size_t>(rank);
  for (size_t other = 0; other < hosts.size(); ++other) {
    if (other == own || hosts[other] != hosts[own]) continue;
    Descriptor handle(static_cast<int>(syscall(SYS_pidfd_open, processes[other], 0)));
    if (handle.get() >= 0) handles_.emplace(static_cast<int>(other), std::move(handle));
  }
}

std::vector<int> Deaths::look() {
  std::vector<pollfd> polled;
  std::vector<int> ranks, dead;
  for (const auto& [rank, handle] : handles_) {
    polled.push_back({handle.get(), POLLIN, 0});
    ranks.push_back(rank);
  }
  if (polled.empty() || poll(polled.data(), polled.size(), 0) <= 0) return {};
  for (size_t i = 0; i < polled.size(); ++i)
    if (polled[i].revents & POLLIN) dead.push_back(ranks[i]);
  for (int rank : dead) handles_.erase(rank);
  return dead;
}

}  // namespace tessera::comm
