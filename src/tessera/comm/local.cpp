#include "tessera/comm/local_communicator.h"

namespace tessera::comm {
namespace {

class LocalWorld : public World {
 public:
  LocalWorld(int size, const WorldOptions& options) : fabric_(std::make_shared<Fabric>(size, options)) {}

  int size() const override { return fabric_->size(); }
  std::unique_ptr<Communicator> join(int rank, std::span<const int> members) override {
    return std::make_unique<LocalCommunicator>(fabric_, rank, members);
  }
  void abort(int rank, std::string_view message) override { fabric_->abort(rank, message); }

 private:
  std::shared_ptr<Fabric> fabric_;  // lives on in the communicators
};

}  // namespace

std::unique_ptr<World> make_local_world(int size, const WorldOptions& options) {
  return std::make_unique<LocalWorld>(size, options);
}

}  // namespace tessera::comm
