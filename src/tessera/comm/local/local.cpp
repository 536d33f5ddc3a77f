#include <numeric>

#include "tessera/base/descriptor.h"
#include "tessera/comm/local/communicator.h"
#include "tessera/comm/local/shared_region.h"

namespace tessera::comm {
namespace {

class LocalWorld : public World {
 public:
  LocalWorld(std::shared_ptr<Fabric> fabric, std::vector<int> here)
      : fabric_(std::move(fabric)), here_(std::move(here)) {}

  int size() const override { return fabric_->size(); }
  std::vector<int> local_ranks() const override { return here_; }
  std::shared_ptr<std::byte[]> allocate(int rank, size_t bytes, const char* what) override {
    return fabric_->region()->allocate(rank, bytes, what);
  }
  std::unique_ptr<Communicator> join(int rank, std::span<const int> members) override {
    return std::make_unique<LocalCommunicator>(fabric_, rank, members);
  }
  void abort(int rank, std::string_view message, ErrorKind kind) override { fabric_->abort(rank, message, kind); }
  std::optional<End> end() const override { return fabric_->end(); }
  Flight* flight(int rank) override { return &fabric_->flight(rank); }

 private:
  std::shared_ptr<Fabric> fabric_;  // lives on in the communicators
  std::vector<int> here_;
};

}  // namespace

std::unique_ptr<World> make_local_world(int size, const WorldOptions& options) {
  auto fabric = std::make_shared<Fabric>(size, options);
  std::vector<int> all(size);
  std::iota(all.begin(), all.end(), 0);
  return std::make_unique<LocalWorld>(std::move(fabric), std::move(all));
}

int create_shared_memory(int size) {
  Descriptor file(SharedRegion::create(size));
  SharedRegion region(file.get(), -1);
  region.set_root(&region.make<Commons>(1, static_cast<Region&>(region), size)[0]);
  return file.release();
}

std::unique_ptr<World> make_shared_world(int memory, int rank, const WorldOptions& options) {
  auto region = std::make_shared<SharedRegion>(memory, rank);
  auto& commons = *static_cast<Commons*>(region->root());
  std::vector<int> here;
  if (rank >= 0) here.push_back(rank);
  return std::make_unique<LocalWorld>(std::make_shared<Fabric>(std::move(region), commons, options), std::move(here));
}

}  // namespace tessera::comm
