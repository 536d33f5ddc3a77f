#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

#include "tessera/comm/communicator.h"
#include "tessera/comm/flight.h"
#include "tessera/ir/pages.h"

namespace tessera::comm {

bool Communicator::test(Ticket) {
  return false;
}

struct World::Flights {
  std::mutex mutex;
  std::map<int, Flight> by_rank;
};

World::World() : flights_(std::make_unique<Flights>()) {}
World::~World() = default;

Flight* World::flight(int rank) {
  const std::vector<int> here = local_ranks();
  if (std::find(here.begin(), here.end(), rank) == here.end()) return nullptr;
  std::lock_guard lock(flights_->mutex);
  return &flights_->by_rank[rank];
}

bool World::first_has_heard(std::chrono::milliseconds) {
  return true;  // if ranks have everything else in common
}

std::vector<int> World::local_ranks() const {
  std::vector<int> all(size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::shared_ptr<std::byte[]> World::allocate(int, size_t bytes, const char* what) {
  return allocate_pages(bytes, what);
}

}  // namespace tessera::comm
